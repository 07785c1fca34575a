// The TypeScript compiler, as often as it is asked: a line of JSON with the text of a file gives a line with what it says of
// that file, as `tsc --strict` says it. Its own library is read once, which is most of the work.
"use strict";
const path = require("node:path");
const ts = require(process.argv[2]);

const FILE = "checks.ts";
const options = {
  noEmit: true,
  strict: true,
  target: ts.ScriptTarget.ES2022,
  lib: ["lib.es2022.d.ts"],
  skipDefaultLibCheck: true,
  types: [],
};
const host = ts.createCompilerHost(options);
const library = new Map();
const read = host.getSourceFile;

function said(text) {
  host.getSourceFile = (name, ...settings) => {
    if (name === FILE) return ts.createSourceFile(name, text, ...settings);
    if (!library.has(name)) library.set(name, read(name, ...settings));
    return library.get(name);
  };
  const program = ts.createProgram([FILE], options, host);
  return ts.formatDiagnostics(ts.getPreEmitDiagnostics(program), host);
}

host.fileExists = (name) => name === FILE || path.dirname(name) === path.dirname(ts.getDefaultLibFilePath(options));
require("node:readline")
  .createInterface({ input: process.stdin })
  .on("line", (line) => process.stdout.write(`${JSON.stringify(said(JSON.parse(line)))}\n`));
