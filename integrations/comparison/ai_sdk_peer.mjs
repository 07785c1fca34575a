// Runs one program with @ai-sdk/code-mode, or with `run` beneath it, and prints as JSON what came of it.
// node ai_sdk_peer.mjs <folder of node_modules> <{"js", "package", "asks"}>
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, request] = process.argv.slice(2);
const { js, package: packageName, asks } = JSON.parse(request);
const require = createRequire(`${folder}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const loadModuleOnly = (path) => import(pathToFileURL(`${folder}/node_modules/${path}/dist/index.js`).href);

const seen = [];
const kind = (value) =>
  value instanceof Date ? "date" : value instanceof Set ? "set" : value instanceof Map ? "map"
    : value instanceof Uint8Array ? "bytes" : typeof value === "bigint" ? "integer" : typeof value;
const functions = {
  load_date: () => new Date(Date.UTC(2026, 0, 2)),
  load_set: () => new Set(["a"]),
  load_bytes: () => new Uint8Array([0, 255]),
  load_big: () => 2n ** 60n + 1n,
  echo: (value) => value,
  add: (a, b) => (typeof a === "object" && a !== null ? a.a + a.b : a + b),
  fail: () => { throw new Error("the order is closed"); },
  pay: (input) => ({ paid: input.sum }),
};
const noted = (name, make) => (...given) => {
  seen.push({ name, kind: kind(given[0]?.value ?? given[0]), given: given[0] === undefined ? null : String(given[0]?.value ?? given[0]) });
  return make(...given);
};

async function withTool() {
  const { tool } = await load("ai");
  const { z } = await load("zod");
  const { experimental_createCodeModeTool: create, experimental_continueCodeModeApproval: go } = await loadModuleOnly("@ai-sdk/code-mode");
  const inputs = { echo: z.object({ value: z.any() }), add: z.object({ a: z.number(), b: z.number() }), pay: z.object({ sum: z.number() }) };
  const tools = {};
  for (const [name, make] of Object.entries(functions)) {
    const execute = name === "echo" ? noted(name, (input) => input.value) : noted(name, make);
    tools[name] = tool({ description: name, inputSchema: inputs[name] ?? z.object({}), execute, needsApproval: name === "pay" && asks });
  }
  const options = asks ? { approval: { mode: "interrupt" }, continuationSecurity: { signingKey: "k".repeat(32) } } : {};
  const outer = { toolCallId: "outer", messages: [] };
  let value = await create(tools, options).execute({ js }, outer);
  const paused = value?.type === "code-mode-interrupt";
  if (paused) {
    const approvalResponse = { approvalId: value.interruptId, approved: true };
    value = await go({ interrupt: JSON.parse(JSON.stringify(value)), approvalResponse, tools, options, toolExecutionOptions: outer });
  }
  return { value, paused };
}

async function withRun() {
  const { createRunner } = await loadModuleOnly("run");
  const hostFunctions = { tools: Object.fromEntries(Object.entries(functions).map(([name, make]) => [name, noted(name, make)])) };
  const syncHostFunctions = { now: { add: functions.add } };
  const moduleLoader = js.includes("import(")
    ? { identity: "v1", normalize: (name) => name, load: () => "export const value = 7;" } : undefined;
  const runner = createRunner({ syncHostFunctions });
  const loading = moduleLoader === undefined ? {} : { moduleLoader, sourceType: "function-body" };
  const result = await runner.run({ source: js, hostFunctions, ...loading });
  return { value: result.value, paused: false };
}

let said;
try {
  const { value, paused } = packageName === "run" ? await withRun() : await withTool();
  const text = JSON.stringify(value, (_, one) => (typeof one === "bigint" ? String(one) : one)) ?? null;
  said = { value: text, kind: kind(value), paused, error: "" };
} catch (error) {
  said = { value: null, kind: "", paused: false, error: `${error.name}: ${error.message}` };
}
process.stdout.write(`${JSON.stringify({ ...said, seen })}\n`);
process.exit(0);
