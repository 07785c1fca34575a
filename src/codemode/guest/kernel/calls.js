// Calls of a module's imports: they never throw, but reject with errors of the classes of @codemode/errors.

const thrownText = (error) => (isObject(error) ? safeRead(error, "message", MAX_MESSAGE) : safeText(error, MAX_MESSAGE));
const refuseInput = (fields) => {
  const told = { __proto__: null, class: "SchemaValidationError", code: "VALIDATION", path: "", expected: "a JSON value" };
  const keys = ownKeys(fields);
  for (let i = 0; i < keys.length; i++) told[keys[i]] = fields[keys[i]];
  told.hint = "pass plain data: no functions, symbols or cycles";
  return rejected(moduleError(told, guestStack(new Err().stack), ""));
};
const sendModule = (kind, name, text) => {
  if (finished) return rejected(new Err("the program has already ended"));
  const limit = reachedLimit(kind);
  return limit === undefined ? send(kind, name, text, false) : rejected(callLimitError(limit));
};
const refuseToolInput = (tool, message, received) => {
  const { serverId, toolName, exportName } = tool;
  return refuseInput({ message: exportName + "(input): the input " + message, serverId, toolName, exportName, received });
};
const callServer = (tool, input) => {
  let text;
  if (input !== undefined)
    try {
      text = toSent(input); // runs guest code, so it comes before the limits are looked at
      if (text === undefined) return refuseToolInput(tool, "must be a JSON value, not " + typeof input, typeof input);
    } catch (error) {
      if (error === null) throw error; // no memory
      return refuseToolInput(tool, "is no JSON value: " + thrownText(error), kindOf(input));
    }
  return sendModule("tool", tool.name, text);
};

const serverFunction = (path, { toolName, exportName }) => {
  const tool = { __proto__: null, name: path + "." + toolName, serverId: path, toolName, exportName };
  return freeze({ [exportName](input) { return callServer(tool, input); } }[exportName]);
};
