// Answers each line of JSON with what becomes of a program that is an ES module among the modules that it is given.
// Run with --experimental-vm-modules and --expose-internals: a syntax error's place is kept where nobody can read it.
"use strict";
const { stripTypeScriptTypes } = require("node:module");
const { createInterface } = require("node:readline");
const { createContext, SourceTextModule, SyntheticModule } = require("node:vm");
const { decorateErrorStack } = require("internal/util");

const placeOf = (error) => {
  decorateErrorStack(error);
  const [head, , marks = ""] = String(error.stack).split("\n");
  const line = Number(/^program:(\d+)$/.exec(head)?.[1]);
  return line ? { line, column: marks.indexOf("^") + 1, width: marks.trim().length } : {};
};

const thrown = (stage, error) => {
  const [, line, column] = /program:(\d+):(\d+)/.exec(error?.stack) ?? [];
  const place = stage === "syntax" ? placeOf(error) : { line: Number(line), column: Number(column) };
  return { stage, name: error?.name, message: String(error?.message), ...place };
};

const synthetic = (context, exports) => {
  const names = Object.keys(exports);
  return new SyntheticModule(names, function () { for (const name of names) this.setExport(name, exports[name]); }, { context });
};

const answer = async ({ source, modules, strip }) => {
  const log = [];
  const context = createContext({ log: (value) => { log.push(JSON.stringify(value) ?? typeof value); } });
  const known = Object.create(null);
  for (const name of Object.keys(modules)) known[name] = synthetic(context, modules[name]);
  const find = (specifier) => {
    if (!(specifier in known)) throw new Error("no such module");
    return known[specifier];
  };
  const dynamic = async (specifier) => {
    const module = find(specifier);
    if (module.status === "unlinked") await module.link(() => {});
    if (module.status === "linked") await module.evaluate();
    return module;
  };
  let module;
  try {
    const text = strip ? stripTypeScriptTypes(source) : source;
    module = new SourceTextModule(text, { context, identifier: "program", importModuleDynamically: dynamic });
  } catch (error) {
    return thrown("syntax", error);
  }
  const found = { requests: module.moduleRequests.map((request) => request.specifier) };
  try {
    await module.link(find);
  } catch (error) {
    return { ...found, ...thrown("link", error) };
  }
  try {
    await module.evaluate({ timeout: 5000 });
  } catch (error) {
    return { ...found, ...thrown("run", error), log };
  }
  return { ...found, stage: "done", log };
};

let last = Promise.resolve();
createInterface({ input: process.stdin }).on("line", (line) => {
  last = last.then(async () => process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + "\n"));
});
