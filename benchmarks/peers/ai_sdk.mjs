// Measures the code mode of the AI SDK: answers the same JSON lines as serve.py.
// node ai_sdk.mjs <folder of node_modules> <file of programs> <package> <name of what makes its tool> [cold W1]
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [folder, programsFile, packageName, maker, mode, coldWorkload] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const loadModuleOnly = (name) => import(pathToFileURL(`${folder}/node_modules/${name}/dist/index.js`).href);

const { programs, rows, hold } = JSON.parse(readFileSync(programsFile, "utf8"));
const { tool } = await load("ai");
const { z } = await load("zod");
const { [maker]: createCodeModeTool } = await loadModuleOnly(packageName);

let arrived = 0;
let letGo;
const released = new Promise((resolve) => (letGo = resolve));
const n = z.object({ n: z.number().int() });
const codeMode = createCodeModeTool({
  noop: tool({ description: "Return what was given.", inputSchema: n, execute: async (input) => input.n }),
  rows: tool({ description: "Return about 1 MiB of JSON.", inputSchema: z.object({}), execute: async () => rows }),
  hold: tool({
    description: "Wait.",
    inputSchema: n,
    execute: async (input) => {
      arrived++;
      await released;
      return input.n;
    },
  }),
});

let serial = 0;
const execute = (js) => codeMode.execute({ js }, { toolCallId: `outer-${++serial}`, messages: [] });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function run(program) {
  const value = await execute(program.unseen ? `// ${serial}\n${program.js}` : program.js);
  if (value !== program.expected) throw new Error(`gave ${JSON.stringify(value)}, not ${program.expected}`);
}

async function time({ workload, runs, gap_ms }) {
  if (serial === 0) await run(programs[workload]);
  const ms = [];
  for (let i = 0; i < runs; i++) {
    await pause(gap_ms);
    const started = performance.now();
    await run(programs[workload]);
    ms.push(performance.now() - started);
  }
  return { ms, direct_ms: null };
}

async function rate({ in_flight, seconds }) {
  await Promise.all(Array.from({ length: in_flight }, () => run(programs.W2)));
  const started = performance.now();
  const ends = started + seconds * 1000;
  let done = 0;
  const keepGoing = async () => {
    while (performance.now() < ends) {
      await run(programs.W2);
      done++;
    }
  };
  await Promise.all(Array.from({ length: in_flight }, keepGoing));
  return { runs_per_second: (done * 1000) / (performance.now() - started) };
}

async function holdOpen({ count }) {
  if (count === 0) {
    await run(programs.W1);
    await pause(300);
  }
  const failed = [];
  for (let i = 0; i < count; i++) execute(hold).catch((error) => failed.push(error));
  while (arrived < count && failed.length === 0) await pause(5);
  if (failed.length) throw failed[0];
  return { holding: true };
}

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

if (mode === "cold") {
  await run(programs[coldWorkload]);
  say({ ready: true });
} else {
  say({ ready: true });
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    try {
      say(await { time, rate, hold: holdOpen }[request.do](request));
    } catch (error) {
      say({ error: `${error.name}: ${String(error.message).slice(0, 300)}` });
    }
  }
  letGo();
}
process.exit(0);
