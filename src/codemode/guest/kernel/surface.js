// What the program sees: tools and console.

const MAX_PATH = 256, MAX_NAMES = 512;
const toolText = freeze({ toString() { return "[tool]"; } }.toString);
const readOnly = (target) => {
  throw new TypeErr(weakGet(nodes, target).root.name + " is read-only");
};

// What the language itself reads must never become a call, unless there are tools of these names: then each is known by
// its path, and `languageNames` is a map. Text is made of a proxy by Symbol.toPrimitive then.
let languageNames; // path -> true
const isLanguageName = (key) => key === "toJSON" || key === "prototype" || key === "constructor" || isTextName(key);
const isTextName = (key) => key === "toString" || key === "toLocaleString" || key === "valueOf";
const takeLanguageNames = (names) => {
  languageNames = undefined;
  if (names === undefined) return;
  languageNames = new NativeMap();
  for (let i = 0; i < names.length; i++) mapSet(languageNames, names[i], true);
};
const isLanguageTool = (path) => languageNames !== undefined && mapGet(languageNames, path) === true;

// JSON.stringify calls toJSON, and a few others toString and valueOf. What a program calls has another frame above it.
const isReadByLanguage = () => {
  const stack = new Err().stack; // this function, the trap, its caller
  const caller = indexOf(stack, "\n", indexOf(stack, "\n") + 1) + 1;
  const line = slice(stack, caller, indexOf(stack, "\n", caller));
  return line === "    at stringify (native)" || line === "    at toLocaleString (native)" ||
    line === "    at [Symbol.toPrimitive] (native)";
};

const NOTHING_LISTED = freeze([]);
const nodes = new NativeWeakMap(); // a proxy's target -> {path, root, members: name -> proxy, listed: [name]}
const listedProperty = { __proto__: null, value: undefined, writable: false, enumerable: true, configurable: true };
const toolProxy = (node) => {
  const target = () => {};
  deleteProperty(target, "name"); // an own property of the target that stays would bind what `get` may answer
  deleteProperty(target, "length");
  setPrototypeOf(target, null);
  for (let i = 0; i < node.listed.length; i++) defineProperty(target, node.listed[i], listedProperty);
  weakSet(nodes, target, node);
  return new NativeProxy(target, toolTraps);
};

const pathTo = (node, key) => (node.path === "" ? key : node.path + "." + key);
const member = (node, key) => {
  if (node.members === undefined) node.members = new NativeMap();
  const known = mapGet(node.members, key);
  if (known !== undefined) return known;
  const path = pathTo(node, key);
  if (path.length > MAX_PATH) throw new RangeErr("tool name too long");
  if (mapSize(node.members) >= MAX_NAMES + node.listed.length) throw new RangeErr("too many different tool names");
  const proxy = toolProxy({ __proto__: null, path, root: node.root, members: undefined, listed: NOTHING_LISTED });
  mapSet(node.members, key, proxy);
  return proxy;
};

const toolTraps = freeze({
  __proto__: null,
  get(target, key) {
    if (typeof key !== "string") return languageNames !== undefined && key === Sym.toPrimitive ? toolText : undefined;
    if (key === "then") return undefined;
    const node = weakGet(nodes, target);
    if (isLanguageName(key) && !isLanguageTool(pathTo(node, key))) return isTextName(key) ? toolText : undefined;
    return member(node, key);
  },
  apply(target, _this, args) {
    const node = weakGet(nodes, target), root = node.root, path = node.path;
    if (path === root.path) throw new Err("missing tool name: call " + root.name + ".<name>(input)");
    if (isLanguageTool(path) && isReadByLanguage()) return lastIndexOf(path, "toJSON") < 0 ? "[tool]" : undefined;
    return root.call(path, args);
  },
  construct: readOnly,
  set: readOnly,
  defineProperty: readOnly,
  deleteProperty: readOnly,
  setPrototypeOf() { return false; },
});
// A global whose members, and theirs, are called as tools; `listed` are those that a program finds by looking.
const rootNode = (name, path, call, listed = NOTHING_LISTED) => {
  const node = { __proto__: null, path, root: undefined, members: undefined, name, call, listed };
  node.root = node;
  return node;
};
const callTools = (path, args) => request(path === "$search" || path === "$describe" ? "catalog" : "tool", path, args);
const toolsRoot = rootNode("tools", "", callTools);
const guestTools = toolProxy(toolsRoot);
// A program that may list the tools is given their names, and has an object of its own.
const makeTools = (given) => {
  if (given.toolNames === undefined) return guestTools;
  const own = toolProxy(rootNode("tools", "", callTools, given.toolNames));
  preventExtensions(own);
  return own;
};

// Each line costs the host a frame, however short it is.
const MAX_CONSOLE_ARGUMENTS = 64, MAX_CONSOLE_LINE = 8000, MAX_CONSOLE_LINES = 4096;
let consoleBytes = 0, consoleLines = 0, consoleFull = false;
let isStable = false; // whether the same values make the same text, and a line that is cut is the last

const consoleText = (value) => {
  if (typeof value === "string") return clip(value, MAX_CONSOLE_LINE);
  if (typeof value !== "object" || value === null || largeOf(value) !== undefined) return safeText(value, MAX_CONSOLE_LINE);
  try {
    if (value instanceof Err) return errorText(value, MAX_CONSOLE_LINE);
    return clip(toShown(value), MAX_CONSOLE_LINE);
  } catch {
    return safeText(value, MAX_CONSOLE_LINE);
  }
};

const shortLine = (args) => {
  let line = "";
  for (let i = 0; i < args.length && i < MAX_CONSOLE_ARGUMENTS; i++)
    line = clip(i === 0 ? consoleText(args[i]) : line + " " + consoleText(args[i]), MAX_CONSOLE_LINE);
  return line;
};
const writeLine = (level, line) => emit("L", '{"level":"' + level + '","text":' + stringify(line) + "}");
const writeCut = (why) => {
  consoleFull = true;
  writeLine("warn", "console output cut: " + why);
};
const write = (level, args) => {
  if (finished || consoleFull) return;
  if (isStable) return writeStable(level, stableLine(args));
  const line = shortLine(args);
  if (limits.max_output_bytes !== undefined) admitOutput(utf8Length(line) + 1);
  consoleBytes += utf8Length(line) + 1;
  if (consoleBytes > limits.max_console_bytes) writeCut(limitName("max_console_bytes") + " is " + limits.max_console_bytes);
  else if (++consoleLines > MAX_CONSOLE_LINES) writeCut("more than " + MAX_CONSOLE_LINES + " lines");
  else writeLine(level, line);
};

const guestConsole = create(Obj.prototype);
for (const level of ["log", "info", "warn", "error", "debug"])
  defineProperty(guestConsole, level, {
    value: { [level](...args) { write(level, args); } }[level],
    enumerable: true, writable: false, configurable: false,
  });
freeze(guestConsole);
