// Reads {"programs": [{"source", "ours"}]} and writes, for each, what Node's own stripping makes of the source and
// whether both results are the same tokens at the same places. "ours" is null for a program that was refused.
// Run with --expose-internals: the tokens come from the acorn that Node carries.
import { createRequire, stripTypeScriptTypes } from "node:module";
import { readFileSync } from "node:fs";

const acorn = createRequire(import.meta.url)("internal/deps/acorn/acorn/dist/acorn");
const HEAD = "async () => {";
const TAIL = "\n}";

// The tokens with their places, and the tree without them. A `;` behind another or after a bracket says nothing by
// itself and is left out of the tokens; where it does say something, the tree differs.
function tokens(text) {
  const found = [];
  const tree = acorn.parse(text, {
    ecmaVersion: "latest",
    sourceType: "script",
    allowReturnOutsideFunction: true,
    allowAwaitOutsideFunction: true,
    locations: true,
    onToken: (t) => {
      const isEmpty = t.type.label === ";" && [undefined, ";", "{", "}"].includes(found.at(-1)?.[0]);
      if (!isEmpty) found.push([t.type.label, text.slice(t.start, t.end), t.loc.start.line, t.loc.start.column]);
    },
  });
  return { found, tree: JSON.stringify(tree, withoutPlaces) };
}

function withoutPlaces(key, value) {
  if (["start", "end", "loc"].includes(key)) return undefined;
  if (typeof value === "bigint") return `${value}n`;
  return Array.isArray(value) ? value.filter((item) => item?.type !== "EmptyStatement") : value;
}

function strip(source) {
  try {
    return { js: stripTypeScriptTypes(source) };
  } catch (bare) {
    // A program is the body of an async function: `return` needs one around it.
    try {
      return { js: stripTypeScriptTypes(HEAD + source + TAIL).slice(HEAD.length, -TAIL.length) };
    } catch (wrapped) {
      const error = bare.code === "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX" ? bare : wrapped;
      return { error: `${error.code}: ${error.message}` };
    }
  }
}

function attempt(make) {
  try {
    return { value: make() };
  } catch (error) {
    return { error: String(error.message) };
  }
}

function compare({ source, ours }) {
  const theirs = strip(source);
  if (ours === null || theirs.error) return { theirs };
  const [a, b] = [attempt(() => tokens(ours)), attempt(() => tokens(theirs.js))];
  return { theirs, our_error: a.error, their_error: b.error, same: JSON.stringify(a) === JSON.stringify(b) };
}

process.removeAllListeners("warning");
const { programs } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(programs.map(compare)));
