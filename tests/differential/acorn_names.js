// Answers each line of JSON text with the names, loops and uses of modules of that program, or null when it is none.
// Run with --expose-internals: the parser is the acorn that Node carries.
"use strict";
const acorn = require("internal/deps/acorn/acorn/dist/acorn");

const HEAD = 'async function program() { "use strict";\n';
const TAIL = "\n}";
const OPTIONS = { ecmaVersion: "latest", sourceType: "script" };
const LOOPS = {
  ForStatement: () => "for",
  ForInStatement: () => "for-in",
  ForOfStatement: (node) => (node.await ? "for-await" : "for-of"),
  WhileStatement: () => "while",
  DoWhileStatement: () => "do",
};
// Where an identifier is no name: by the kind of the node that holds it and the field it stands in.
const NO_NAMES = new Set([
  "LabeledStatement.label",
  "BreakStatement.label",
  "ContinueStatement.label",
  "MetaProperty.meta",
  "MetaProperty.property",
]);
const NAMED_BY_KEY = { MemberExpression: "property", Property: "key", MethodDefinition: "key", PropertyDefinition: "key" };

function isName(holder, field) {
  if (NO_NAMES.has(`${holder.type}.${field}`)) return false;
  return NAMED_BY_KEY[holder.type] !== field || holder.computed;
}

function visit(node, found, holder, field) {
  const at = node.start - HEAD.length;
  if (node.type === "Identifier" && isName(holder, field)) found.names.push([node.name, at]);
  if (node.type in LOOPS) found.loops.push([LOOPS[node.type](node), at]);
  if (node.type === "ImportExpression") found.modules.push(["import()", at]);
  // A shorthand is one identifier that stands in two fields.
  const fields = node.type === "Property" && node.shorthand ? ["value"] : Object.keys(node);
  for (const name of fields) {
    const below = Array.isArray(node[name]) ? node[name] : [node[name]];
    for (const child of below) if (child && typeof child.type === "string") visit(child, found, node, name);
  }
}

function answer(text) {
  let tree;
  try {
    tree = acorn.parse(HEAD + text + TAIL, OPTIONS);
  } catch {
    return null;
  }
  // A program may not end the function that it is the body of.
  if (tree.body.length !== 1 || tree.body[0].end !== HEAD.length + text.length + TAIL.length) return null;
  const found = { names: [], loops: [], modules: [] };
  for (const statement of tree.body[0].body.body.slice(1)) visit(statement, found, tree, "body");
  return found;
}

require("readline")
  .createInterface({ input: process.stdin })
  .on("line", (line) => process.stdout.write(JSON.stringify(answer(JSON.parse(line))) + "\n"));
