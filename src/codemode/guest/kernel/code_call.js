// What a CodeCall script sees: callTool, getTool, codecallContext, and a global for each namespace of tools.

const MAX_TOOL_NAME = 256;
const NOTHING_GIVEN = freeze({ __proto__: null });
let given = NOTHING_GIVEN; // JSON of this program alone: context, definitions, whether these are all, namespaces

// Frozen with all that it holds, so that what a program reads of a call is what the host said of it. With an origin it
// is the very error of that call, of its limit or of its input: only the object made here is.
const callError = (fields, stack, origin) => {
  const error = new Err(fields.message), shown = ["code", "toolName", "details", "status", "body", "retryAfterMs"];
  constant(error, "name", "Error");
  constant(error, "message", fields.message);
  constant(error, "stack", stack);
  for (let i = 0; i < shown.length; i++) {
    const value = fields[shown[i]];
    if (value === undefined) continue;
    const descriptor = { __proto__: null, value: freezeJson(value), writable: false, enumerable: true, configurable: false };
    defineProperty(error, shown[i], descriptor);
  }
  if (origin !== undefined) weakSet(hostErrors, error, origin);
  return freeze(error);
};

const refusedOrigin = (toolName) => ',"refused":' + stringify(toolName);

// A call of which the host hears nothing, unless its error ends the program.
const refuseCall = (code, message, toolName, isQuiet, origin) => {
  const fields = { code, message, toolName }, stack = guestStack(new Err().stack);
  return new NativePromise((resolve, reject) => {
    if (isQuiet) resolve({ success: false, error: fields });
    else reject(callError(fields, stack, origin));
  });
};

// `shown` tells of the call in words.
const callByName = (name, input, isQuiet, shown) => {
  const toolName = slice(name, 0, MAX_TOOL_NAME), { text, problem } = writtenInput(input);
  if (problem !== undefined)
    return refuseCall("VALIDATION", shown(name) + ": the input " + problem, toolName, isQuiet, refusedOrigin(toolName));
  const limit = reachedLimit("tool");
  if (limit === undefined) return send("tool", toolName, text, isQuiet);
  const message = LIMIT_TEXTS[limit] + " (at most " + limits[limit] + ")";
  return refuseCall("LIMIT", message, toolName, isQuiet, limitOrigin(limit) + refusedOrigin(toolName));
};

const shownCall = (name) => "callTool(" + stringify(clip(name, MAX_NAME)) + ", input)";
const shownMethod = (path) => clip(path, MAX_NAME) + "(input)";

const guestCallTool = freeze({
  callTool(name, input = undefined, options = undefined) {
    requireRunning();
    let isQuiet = false;
    try {
      if (isObject(options)) isQuiet = options.throwOnError === false;
    } catch (error) {
      return rejected(error);
    }
    const place = "callTool(name, input, options)";
    if (typeof name !== "string")
      return refuseCall("VALIDATION", place + ": the name must be a string, not " + kindOf(name), "", isQuiet, undefined);
    if (options !== undefined && options !== null && typeof options !== "object") {
      const problem = ": the options must be an object such as {throwOnError: false}, not " + typeof options;
      return refuseCall("VALIDATION", place + problem, slice(name, 0, MAX_TOOL_NAME), isQuiet, undefined);
    }
    return callByName(name, input, isQuiet, shownCall);
  },
}.callTool);

const makeNamespace = (name) =>
  toolProxy(rootNode(name, name, (path, args) => {
    requireRunning();
    return callByName(path, args[0], false, shownMethod);
  }));

const makeContext = () => freezeJson(given.context === undefined ? {} : given.context);

const definitionOf = (name) => {
  const own = given.definitions === undefined ? undefined : getOwnPropertyDescriptor(given.definitions, name);
  return own === undefined ? undefined : own.value; // null: a name in the program that no tool has
};
const views = new NativeMap(); // name -> what getTool has answered

const guestGetTool = freeze({
  getTool(name) {
    if (typeof name !== "string") throw new TypeErr("getTool(name): the name must be a string, not " + kindOf(name));
    const known = mapGet(views, name);
    if (known !== undefined) return known;
    const definition = definitionOf(name);
    if (isObject(definition)) {
      const { description, inputSchema, outputSchema = null } = definition;
      const view = freezeJson({ name, description, inputSchema, outputSchema });
      mapSet(views, name, view);
      return view;
    }
    if (definition === undefined && given.all !== true)
      throw new Err("getTool(" + stringify(clip(name, MAX_NAME)) + "): the definitions of all tools are too large to go" +
        ' along, so the name has to stand in the program as text, as in getTool("name"), and those named so are at most' +
        " 1 MiB together");
    return undefined;
  },
}.getTool);
