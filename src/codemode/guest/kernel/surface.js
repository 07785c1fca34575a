// What the program sees: tools and console.

const MAX_PATH = 256, MAX_NAMES = 512;
const toolText = freeze({ toString() { return "[tool]"; } }.toString);
const readOnly = () => {
  throw new TypeErr("tools is read-only");
};

const nodes = new NativeWeakMap(); // a proxy's target -> {path, members: name -> proxy}
const toolProxy = (node) => {
  const target = () => {};
  deleteProperty(target, "name"); // an own property of the target would bind what `get` may answer
  deleteProperty(target, "length");
  setPrototypeOf(target, null);
  weakSet(nodes, target, node);
  return new NativeProxy(target, toolTraps);
};

const member = (node, key) => {
  if (node.members === undefined) node.members = new NativeMap();
  const known = mapGet(node.members, key);
  if (known !== undefined) return known;
  const path = node.path === "" ? key : node.path + "." + key;
  if (path.length > MAX_PATH) throw new RangeErr("tool name too long");
  if (mapSize(node.members) >= MAX_NAMES) throw new RangeErr("too many different tool names");
  const proxy = toolProxy({ __proto__: null, path, members: undefined });
  mapSet(node.members, key, proxy);
  return proxy;
};

const toolTraps = freeze({
  __proto__: null,
  get(target, key) {
    // What the language itself reads must never become a call.
    if (typeof key !== "string" || key === "then" || key === "toJSON" || key === "prototype" || key === "constructor")
      return undefined;
    if (key === "toString" || key === "toLocaleString" || key === "valueOf") return toolText;
    return member(weakGet(nodes, target), key);
  },
  apply(target, _this, args) {
    const path = weakGet(nodes, target).path;
    if (path === "") throw new Err("missing tool name: call tools.<name>(input)");
    return request(path === "$search" || path === "$describe" ? "catalog" : "tool", path, args);
  },
  construct: readOnly,
  set: readOnly,
  defineProperty: readOnly,
  deleteProperty: readOnly,
  setPrototypeOf() { return false; },
});
const root = { __proto__: null, path: "", members: undefined };
constant(G, "tools", toolProxy(root));

// Each line costs the host a frame, however short it is.
const MAX_CONSOLE_ARGUMENTS = 64, MAX_CONSOLE_LINE = 8000, MAX_CONSOLE_LINES = 4096;
let consoleBytes = 0, consoleLines = 0, consoleFull = false;

const consoleText = (value) => {
  if (typeof value === "string") return clip(value, MAX_CONSOLE_LINE);
  if (typeof value !== "object" || value === null) return safeText(value, MAX_CONSOLE_LINE);
  try {
    if (value instanceof Err) return safeText(value, MAX_CONSOLE_LINE);
    return clip(toJson(value), MAX_CONSOLE_LINE);
  } catch {
    return safeText(value, MAX_CONSOLE_LINE);
  }
};

const write = (level, args) => {
  if (finished || consoleFull) return;
  let line = "";
  for (let i = 0; i < args.length && i < MAX_CONSOLE_ARGUMENTS; i++)
    line = clip(i === 0 ? consoleText(args[i]) : line + " " + consoleText(args[i]), MAX_CONSOLE_LINE);
  consoleBytes += utf8Length(line) + 1;
  if (consoleBytes > limits.max_console_bytes) {
    consoleFull = true;
    level = "warn";
    line = "console output cut: max_console_bytes is " + limits.max_console_bytes;
  } else if (++consoleLines > MAX_CONSOLE_LINES) {
    consoleFull = true;
    level = "warn";
    line = "console output cut: more than " + MAX_CONSOLE_LINES + " lines";
  }
  emit("L", '{"level":"' + level + '","text":' + stringify(line) + "}");
};

const guestConsole = create(Obj.prototype);
for (const level of ["log", "info", "warn", "error", "debug"])
  defineProperty(guestConsole, level, {
    value: { [level](...args) { write(level, args); } }[level],
    enumerable: true, writable: false, configurable: false,
  });
constant(G, "console", freeze(guestConsole));
