// The globals of a CodeCall script: callTool, getTool, codecallContext and one for each tool namespace.

const MAX_TOOL_NAME_LENGTH = 256;
const EMPTY_OBJECT = freeze({ __proto__: null });
let given = EMPTY_OBJECT; // this program's config: context, definitions, `all` (are these complete), namespaces

// Deeply frozen, so that a program cannot change the host's report of a call. `origin` is set if this is the error
// of a call, its limit or its input; the host recognises it only on this object.
const makeCallError = (fields, stack, origin) => {
  const error = new Err(fields.message), shown = ["code", "toolName", "details", "status", "body", "retryAfterMs"];
  defineConstant(error, "name", "Error");
  defineConstant(error, "message", fields.message);
  defineConstant(error, "stack", stack);
  for (let i = 0; i < shown.length; i++) {
    const value = fields[shown[i]];
    if (value === undefined) continue;
    const descriptor = { __proto__: null, value: freezeJson(value), writable: false, enumerable: true, configurable: false };
    defineProperty(error, shown[i], descriptor);
  }
  if (origin !== undefined) weakSet(errorOrigins, error, origin);
  return freeze(error);
};

const toRefusedMember = (toolName) => ',"refused":' + stringify(toolName);

// A call that is refused here. The host does not see it unless its error ends the program.
const refuseCall = (code, message, toolName, returnsErrors, origin) => {
  const fields = { code, message, toolName }, stack = formatGuestStack(new Err().stack);
  return new NativePromise((resolve, reject) => {
    if (returnsErrors) resolve({ success: false, error: fields });
    else reject(makeCallError(fields, stack, origin));
  });
};

// `shown` formats the call for messages.
const callByName = (name, input, returnsErrors, shown) => {
  const toolName = slice(name, 0, MAX_TOOL_NAME_LENGTH), { text, problem } = encodeInput(input);
  if (problem !== undefined)
    return refuseCall("VALIDATION", shown(name) + ": the input " + problem, toolName, returnsErrors, toRefusedMember(toolName));
  const limit = findReachedLimit("tool");
  if (limit === undefined) return sendRequest("tool", toolName, text, returnsErrors);
  const message = LIMIT_MESSAGES[limit] + " (at most " + programSettings[limit] + ")";
  return refuseCall("LIMIT", message, toolName, returnsErrors, encodeLimitOrigin(limit) + toRefusedMember(toolName));
};

const formatCallTool = (name) => "callTool(" + stringify(clip(name, MAX_NAME_LENGTH)) + ", input)";
const formatMethodCall = (path) => clip(path, MAX_NAME_LENGTH) + "(input)";

const guestCallTool = freeze({
  callTool(name, input = undefined, options = undefined) {
    requireRunning();
    let returnsErrors = false;
    try {
      if (isObject(options)) returnsErrors = options.throwOnError === false;
    } catch (error) {
      return rejectWith(error);
    }
    const place = "callTool(name, input, options)";
    if (typeof name !== "string")
      return refuseCall("VALIDATION", place + ": the name must be a string, not " + getTypeName(name), "", returnsErrors, undefined);
    if (options !== undefined && options !== null && typeof options !== "object") {
      const problem = ": the options must be an object such as {throwOnError: false}, not " + typeof options;
      return refuseCall("VALIDATION", place + problem, slice(name, 0, MAX_TOOL_NAME_LENGTH), returnsErrors, undefined);
    }
    return callByName(name, input, returnsErrors, formatCallTool);
  },
}.callTool);

const makeNamespace = (name) =>
  makeToolProxy(makeRootNode(name, name, (path, args) => {
    requireRunning();
    return callByName(path, args[0], false, formatMethodCall);
  }));

const makeCodeCallContext = () => freezeJson(given.context === undefined ? {} : given.context);

const findDefinition = (name) => {
  const own = given.definitions === undefined ? undefined : getOwnPropertyDescriptor(given.definitions, name);
  return own === undefined ? undefined : own.value; // null: the program names a tool that does not exist
};
const toolViews = new NativeMap(); // name -> cached result of getTool

const guestGetTool = freeze({
  getTool(name) {
    if (typeof name !== "string") throw new TypeErr("getTool(name): the name must be a string, not " + getTypeName(name));
    const known = mapGet(toolViews, name);
    if (known !== undefined) return known;
    const definition = findDefinition(name);
    if (isObject(definition)) {
      const { description, inputSchema, outputSchema = null } = definition;
      const view = freezeJson({ name, description, inputSchema, outputSchema });
      mapSet(toolViews, name, view);
      return view;
    }
    if (definition === undefined && given.all !== true)
      throw new Err("getTool(" + stringify(clip(name, MAX_NAME_LENGTH)) + "): the definitions of all tools are too large to go" +
        ' along, so the name has to stand in the program as text, as in getTool("name"), and those named so are at most' +
        " 1 MiB together");
    return undefined;
  },
}.getTool);
