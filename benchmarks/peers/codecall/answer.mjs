// Answers scripts with the plugin's own execute tool: a line of JSON {script, options} in, a line with its answer out.
// Its tool pipeline is replaced by four tools.
import { createInterface } from "node:readline";
import ExecuteTool from "codecall/src/tools/execute.tool";
import EnclaveService from "codecall/src/services/enclave.service";
import CodeCallConfig from "codecall/src/providers/code-call.config";

const TOOLS = {
  "orders:find": ({ max = 2 }) => ({ rows: Array.from({ length: max }, (_, at) => ({ no: at + 1 })) }),
  "ledger:close": () => {
    throw new Error("ledger file missing in /var/books");
  },
  "docs:large": ({ size }) => ({ text: "y".repeat(size) }),
  "jobs:slow": async ({ wait }) => {
    await new Promise((done) => setTimeout(done, wait));
    return {};
  },
};

async function called({ name, arguments: input }) {
  if (!(name in TOOLS)) throw new Error(`no tool ${name}`);
  return { content: [{ type: "text", text: JSON.stringify(await TOOLS[name](input ?? {})) }] };
}

const noting = (service, calls) => ({
  execute: (script, environment) => {
    const callTool = (name, ...rest) => {
      calls.push(name);
      return environment.callTool(name, ...rest);
    };
    return service.execute(script, { ...environment, callTool });
  },
});

async function answered({ script, options }) {
  const vm = { preset: "secure", ...(options?.timeoutMs ? { timeoutMs: options.timeoutMs } : {}) };
  const config = new CodeCallConfig({ vm, sidecar: { enabled: options?.sidecar === true } });
  const calls = [];
  const tool = Object.assign(new ExecuteTool(), {
    scope: {
      runFlow: (_flow, { request }) => called(request.params),
      tools: { getTools: () => Object.keys(TOOLS).map((name) => ({ name, fullName: name })) },
    },
    get: (wanted) => (wanted === EnclaveService ? noting(new EnclaveService(config), calls) : config),
  });
  const answer = await tool.execute({ script });
  const says = answer.error ? { says: String(answer.error.message).trim() } : { result: answer.result ?? null };
  return { status: answer.status, ...says, calls };
}

console.log = console.warn = console.error = () => {};
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(await answered(JSON.parse(line))) + "\n");
}
