// The globals `tools` and `console`, and the proxies behind globals whose members are called as tools.

const MAX_TOOL_PATH_LENGTH = 256, MAX_PROXY_MEMBERS = 512;
const toolToString = freeze({ toString() { return "[tool]"; } }.toString);
const throwReadOnly = (target) => {
  throw new TypeErr(weakGet(toolNodes, target).root.name + " is read-only");
};

// A property that the engine reads by itself must not become a tool call. A tool may have such a name: `languageNames`
// then maps its path, and Symbol.toPrimitive converts the proxy to text.
let languageNames; // path -> true
const isLanguageName = (key) => key === "toJSON" || key === "prototype" || key === "constructor" || isConversionName(key);
const isConversionName = (key) => key === "toString" || key === "toLocaleString" || key === "valueOf";
const setLanguageNames = (names) => {
  languageNames = undefined;
  if (names === undefined) return;
  languageNames = new NativeMap();
  for (let i = 0; i < names.length; i++) mapSet(languageNames, names[i], true);
};
const isLanguageTool = (path) => languageNames !== undefined && mapGet(languageNames, path) === true;

// JSON.stringify calls toJSON; a few natives convert to text. A call by the program has another caller frame.
const isCalledByEngine = () => {
  const stack = new Err().stack; // this function, the trap, its caller
  const caller = indexOf(stack, "\n", indexOf(stack, "\n") + 1) + 1;
  const line = slice(stack, caller, indexOf(stack, "\n", caller));
  return line === "    at stringify (native)" || line === "    at toLocaleString (native)" ||
    line === "    at [Symbol.toPrimitive] (native)";
};

const NO_LISTED_NAMES = freeze([]);
const toolNodes = new NativeWeakMap(); // a proxy's target -> {path, root, members: name -> proxy, listed: [name]}
const listedDescriptor = { __proto__: null, value: undefined, writable: false, enumerable: true, configurable: true };
const makeToolProxy = (node) => {
  const target = () => {};
  deleteProperty(target, "name"); // an own property of the target would constrain what `get` may return
  deleteProperty(target, "length");
  setPrototypeOf(target, null);
  for (let i = 0; i < node.listed.length; i++) defineProperty(target, node.listed[i], listedDescriptor);
  weakSet(toolNodes, target, node);
  return new NativeProxy(target, toolTraps);
};

const joinPath = (node, key) => (node.path === "" ? key : node.path + "." + key);
const getMember = (node, key) => {
  if (node.members === undefined) node.members = new NativeMap();
  const known = mapGet(node.members, key);
  if (known !== undefined) return known;
  const path = joinPath(node, key);
  if (path.length > MAX_TOOL_PATH_LENGTH) throw new RangeErr("tool name too long");
  if (mapSize(node.members) >= MAX_PROXY_MEMBERS + node.listed.length) throw new RangeErr("too many different tool names");
  const proxy = makeToolProxy({ __proto__: null, path, root: node.root, members: undefined, listed: NO_LISTED_NAMES });
  mapSet(node.members, key, proxy);
  return proxy;
};

const toolTraps = freeze({
  __proto__: null,
  get(target, key) {
    if (typeof key !== "string") return languageNames !== undefined && key === Sym.toPrimitive ? toolToString : undefined;
    if (key === "then") return undefined;
    const node = weakGet(toolNodes, target);
    if (isLanguageName(key) && !isLanguageTool(joinPath(node, key))) return isConversionName(key) ? toolToString : undefined;
    return getMember(node, key);
  },
  apply(target, _this, args) {
    const node = weakGet(toolNodes, target), root = node.root, path = node.path;
    if (path === root.path) throw new Err("missing tool name: call " + root.name + ".<name>(input)");
    if (isLanguageTool(path) && isCalledByEngine()) return lastIndexOf(path, "toJSON") < 0 ? "[tool]" : undefined;
    return root.call(path, args);
  },
  construct: throwReadOnly,
  set: throwReadOnly,
  defineProperty: throwReadOnly,
  deleteProperty: throwReadOnly,
  setPrototypeOf() { return false; },
});
// A global whose members, at any depth, are called as tools. `listed`: the member names that can be enumerated.
const makeRootNode = (name, path, call, listed = NO_LISTED_NAMES) => {
  const node = { __proto__: null, path, root: undefined, members: undefined, name, call, listed };
  node.root = node;
  return node;
};
const requestTool = (path, args) => request(path === "$search" || path === "$describe" ? "catalog" : "tool", path, args);
const toolsRoot = makeRootNode("tools", "", requestTool);
const guestTools = makeToolProxy(toolsRoot);
// If the program may enumerate the tools, it gets a proxy of its own with their names.
const makeTools = (given) => {
  if (given.toolNames === undefined) return guestTools;
  const own = makeToolProxy(makeRootNode("tools", "", requestTool, given.toolNames));
  preventExtensions(own);
  return own;
};

// Each line costs the host a frame, however short it is.
const MAX_CONSOLE_ARGUMENTS = 64, MAX_CONSOLE_LINE_LENGTH = 8000, MAX_CONSOLE_LINES = 4096;
let consoleBytes = 0, consoleLines = 0, isConsoleFull = false;
let isConsoleStable = false; // whether equal values give equal text and a cut line ends the output

const formatConsoleValue = (value) => {
  if (typeof value === "string") return clip(value, MAX_CONSOLE_LINE_LENGTH);
  if (typeof value !== "object" || value === null || getLargeString(value) !== undefined) return toSafeText(value, MAX_CONSOLE_LINE_LENGTH);
  try {
    if (value instanceof Err) return formatError(value, MAX_CONSOLE_LINE_LENGTH);
    return clip(toDisplayJson(value), MAX_CONSOLE_LINE_LENGTH);
  } catch {
    return toSafeText(value, MAX_CONSOLE_LINE_LENGTH);
  }
};

const formatConsoleLine = (args) => {
  let line = "";
  for (let i = 0; i < args.length && i < MAX_CONSOLE_ARGUMENTS; i++)
    line = clip(i === 0 ? formatConsoleValue(args[i]) : line + " " + formatConsoleValue(args[i]), MAX_CONSOLE_LINE_LENGTH);
  return line;
};
const writeConsoleLine = (level, line) => emit("L", '{"level":"' + level + '","text":' + stringify(line) + "}");
const closeConsole = (cutReason) => {
  isConsoleFull = true;
  writeConsoleLine("warn", "console output cut: " + cutReason);
};
const writeConsole = (level, args) => {
  if (finished || isConsoleFull) return;
  if (isConsoleStable) return writeStableLine(level, formatStableLine(args));
  const line = formatConsoleLine(args);
  if (programSettings.max_output_bytes !== undefined) countOutput(utf8Length(line) + 1);
  consoleBytes += utf8Length(line) + 1;
  if (consoleBytes > programSettings.max_console_bytes) closeConsole(getLimitName("max_console_bytes") + " is " + programSettings.max_console_bytes);
  else if (++consoleLines > MAX_CONSOLE_LINES) closeConsole("more than " + MAX_CONSOLE_LINES + " lines");
  else writeConsoleLine(level, line);
};

const guestConsole = create(Obj.prototype);
for (const level of ["log", "info", "warn", "error", "debug"])
  defineProperty(guestConsole, level, {
    value: { [level](...args) { writeConsole(level, args); } }[level],
    enumerable: true, writable: false, configurable: false,
  });
freeze(guestConsole);
