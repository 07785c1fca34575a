// The classes of @codemode/errors, for programs to catch and to throw, and the errors of them that are made for the host.

const PLAIN_HINT = "read the message, and change the program accordingly";
const HINTS = freeze({
  __proto__: null,
  CodemodeError: PLAIN_HINT,
  SchemaValidationError: "change the input at `path` to what `expected` says",
  ToolNotFoundError: "find the tool's name with searchTools of @codemode/discovery",
  ServerNotFoundError: "find the server's id with listServers of @codemode/discovery",
  ToolCallError: "catch the error, and go on without this call",
  AuthenticationError: "ask the user to sign in to this server",
  SandboxLimitError: "do less in one program",
});
const LIMIT_HINTS = freeze({
  __proto__: null,
  max_bridge_requests: "make fewer calls in one program",
  max_in_flight_bridge_requests: "await some calls before making more",
  max_catalog_requests: "ask for more at once, and keep the answers",
  max_timers: "set fewer timers in one program",
});
// What is said of an error to the host, beside name, message and stack.
const FIELDS = freeze([
  "code", "hint", "serverId", "toolName", "exportName", "path", "expected", "received", "example", "limit",
]);
const MAX_FIELD = 1500;
const NOT_COPIED = freeze({ __proto__: null, name: true, message: true, stack: true, cause: true, class: true });

// Own and enumerable, so that JSON.stringify keeps it.
const shown = (object, key, value, isFixed) =>
  defineProperty(object, key, {
    __proto__: null, value, writable: !isFixed, enumerable: true, configurable: !isFixed,
  });
const copyFields = (error, fields) => {
  const keys = ownKeys(fields);
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i];
    if (typeof key !== "string" || NOT_COPIED[key] === true) continue;
    const own = getOwnPropertyDescriptor(fields, key);
    if (own !== undefined && own.enumerable) shown(error, key, fields[key], false);
  }
};

const classNames = new NativeWeakMap(); // the prototype of a class -> its name
const initialise = (error, message, fields) => {
  shown(error, "name", error.name, false); // a program's own class may have another one
  shown(error, "message", message === undefined ? "" : error.message, false);
  shown(error, "hint", HINTS[classOf(error)] || PLAIN_HINT, false);
  if (isObject(fields)) copyFields(error, fields);
};
class CodemodeError extends Err {
  constructor(message = undefined, fields = undefined) {
    super(message, fields);
    initialise(this, message, fields);
  }
}
const CLASSES = create(null);
const addClass = (Class, name) => {
  method(Class.prototype, "name", name);
  weakSet(classNames, Class.prototype, name);
  CLASSES[name] = Class;
};
addClass(CodemodeError, "CodemodeError");
const extend = (Base, name) =>
  addClass({ [name]: class extends Base {} }[name], name);
for (const name of [
  "SchemaValidationError", "ToolNotFoundError", "ServerNotFoundError", "ToolCallError", "SandboxLimitError",
]) extend(CodemodeError, name);
extend(CLASSES.ToolCallError, "AuthenticationError");
freeze(CLASSES);

// The nearest of our classes that a value is of; "" for none. A proxy may answer as it likes, and for as long.
const MAX_CHAIN = 64;
const classOf = (value) => {
  for (let i = 0, at = value; i < MAX_CHAIN && isObject(at); i++, at = getPrototypeOf(at)) {
    const name = weakGet(classNames, at);
    if (name !== undefined) return name;
  }
  return "";
};

// Frozen with all that it holds. Only the error made here is that of the call, the limit or the import it is about.
const moduleError = (fields, stack, origin) => {
  const Class = CLASSES[fields.class] || CodemodeError, keys = ownKeys(fields);
  const error = construct(Err, [], Class); // its message comes behind its name
  constant(error, "stack", stack);
  shown(error, "name", fields.name === undefined ? Class.prototype.name : fields.name, true);
  shown(error, "message", fields.message, true);
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i];
    if (NOT_COPIED[key] !== true && fields[key] !== undefined) shown(error, key, freezeJson(fields[key]), true);
  }
  if (fields.hint === undefined) shown(error, "hint", HINTS[Class.prototype.name], true);
  if (origin !== "") weakSet(hostErrors, error, origin);
  return freeze(error);
};

const limitFields = (limit, text, value) => ({
  class: "SandboxLimitError", code: "SANDBOX_LIMIT", message: text + " (" + limitName(limit) + " is " + value + ")",
  hint: LIMIT_HINTS[limit], limit: limitName(limit),
});
const callLimitError = (limit) =>
  moduleError(limitFields(limit, LIMIT_TEXTS[limit], limits[limit]), guestStack(new Err().stack), limitOrigin(limit));

// Each value bounded by itself, so that the whole stays JSON.
const fieldJson = (error, key) => {
  try {
    const value = error[key], text = value === undefined ? undefined : toShown(value);
    if (text === undefined) return "";
    const short = text.length <= MAX_FIELD ? text : stringify(clip(typeof value === "string" ? value : text, MAX_FIELD));
    return "," + stringify(key) + ":" + short;
  } catch {
    return "";
  }
};
// What the host is told of an error of ours that ended the program.
const classJson = (error) => {
  let name = "", fields = "";
  try {
    name = classOf(error);
  } catch {} // a proxy in the chain
  if (name === "") return "";
  for (let i = 0; i < FIELDS.length; i++) fields += fieldJson(error, FIELDS[i]);
  return ',"class":"' + name + '","fields":' + stringify("{" + slice(fields, 1) + "}");
};
