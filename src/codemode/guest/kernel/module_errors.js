// The classes of @codemode/errors, which programs can catch and throw, and the errors that the host's failures become.

const DEFAULT_HINT = "read the message, and change the program accordingly";
const CLASS_HINTS = freeze({
  __proto__: null,
  CodemodeError: DEFAULT_HINT,
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
// Fields of an error that are reported to the host, besides name, message and stack.
const REPORTED_FIELDS = freeze([
  "code", "hint", "serverId", "toolName", "exportName", "path", "expected", "received", "example", "limit",
]);
const MAX_FIELD_LENGTH = 1500;
const UNCOPIED_KEYS = freeze({ __proto__: null, name: true, message: true, stack: true, cause: true, class: true });

// Defines an own enumerable property, so that JSON.stringify keeps it.
const shown = (object, key, value, isPropertyFixed) =>
  defineProperty(object, key, {
    __proto__: null, value, writable: !isPropertyFixed, enumerable: true, configurable: !isPropertyFixed,
  });
const copyFields = (error, fields) => {
  const keys = ownKeys(fields);
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i];
    if (typeof key !== "string" || UNCOPIED_KEYS[key] === true) continue;
    const own = getOwnPropertyDescriptor(fields, key);
    if (own !== undefined && own.enumerable) shown(error, key, fields[key], false);
  }
};

const classNames = new NativeWeakMap(); // class prototype -> class name
const initializeError = (error, message, fields) => {
  shown(error, "name", error.name, false); // a subclass in a program may have another name
  shown(error, "message", message === undefined ? "" : error.message, false);
  shown(error, "hint", CLASS_HINTS[getErrorClass(error)] || DEFAULT_HINT, false);
  if (isObject(fields)) copyFields(error, fields);
};
class CodemodeError extends Err {
  constructor(message = undefined, fields = undefined) {
    super(message, fields);
    initializeError(this, message, fields);
  }
}
const ERROR_CLASSES = create(null);
const addErrorClass = (Class, name) => {
  defineHidden(Class.prototype, "name", name);
  weakSet(classNames, Class.prototype, name);
  ERROR_CLASSES[name] = Class;
};
addErrorClass(CodemodeError, "CodemodeError");
const addSubclass = (Base, name) =>
  addErrorClass({ [name]: class extends Base {} }[name], name);
for (const name of [
  "SchemaValidationError", "ToolNotFoundError", "ServerNotFoundError", "ToolCallError", "SandboxLimitError",
]) addSubclass(CodemodeError, name);
addSubclass(ERROR_CLASSES.ToolCallError, "AuthenticationError");
freeze(ERROR_CLASSES);

// The nearest of these classes in a value's prototype chain; "" for none. A proxy can make the chain endless.
const MAX_PROTOTYPE_CHAIN = 64;
const getErrorClass = (value) => {
  for (let i = 0, at = value; i < MAX_PROTOTYPE_CHAIN && isObject(at); i++, at = getPrototypeOf(at)) {
    const name = weakGet(classNames, at);
    if (name !== undefined) return name;
  }
  return "";
};

// Deeply frozen. With an origin, the host recognises this object as the error of a call, limit or import.
const makeModuleError = (fields, stack, origin) => {
  const Class = ERROR_CLASSES[fields.class] || CodemodeError, keys = ownKeys(fields);
  const error = construct(Err, [], Class); // the message is defined after the name, for the order of keys
  defineConstant(error, "stack", stack);
  shown(error, "name", fields.name === undefined ? Class.prototype.name : fields.name, true);
  shown(error, "message", fields.message, true);
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i];
    if (UNCOPIED_KEYS[key] !== true && fields[key] !== undefined) shown(error, key, freezeJson(fields[key]), true);
  }
  if (fields.hint === undefined) shown(error, "hint", CLASS_HINTS[Class.prototype.name], true);
  if (origin !== "") weakSet(errorOrigins, error, origin);
  return freeze(error);
};

const makeLimitFields = (limit, text, value) => ({
  class: "SandboxLimitError", code: "SANDBOX_LIMIT", message: text + " (" + getLimitName(limit) + " is " + value + ")",
  hint: LIMIT_HINTS[limit], limit: getLimitName(limit),
});
const makeCallLimitError = (limit) =>
  makeModuleError(makeLimitFields(limit, LIMIT_MESSAGES[limit], programSettings[limit]), formatGuestStack(new Err().stack), encodeLimitOrigin(limit));

// Each value is clipped separately, so that the result stays valid JSON.
const toFieldMember = (error, key) => {
  try {
    const value = error[key], text = value === undefined ? undefined : toDisplayJson(value);
    if (text === undefined) return "";
    const short = text.length <= MAX_FIELD_LENGTH ? text : stringify(clip(typeof value === "string" ? value : text, MAX_FIELD_LENGTH));
    return "," + stringify(key) + ":" + short;
  } catch {
    return "";
  }
};
// Class and fields of an uncaught @codemode/errors error, as JSON members for the host.
const toClassMembers = (error) => {
  let name = "", fields = "";
  try {
    name = getErrorClass(error);
  } catch {} // a proxy in the chain
  if (name === "") return "";
  for (let i = 0; i < REPORTED_FIELDS.length; i++) fields += toFieldMember(error, REPORTED_FIELDS[i]);
  return ',"class":"' + name + '","fields":' + stringify("{" + slice(fields, 1) + "}");
};
