// Calls of a module's imports: they never throw, but reject with errors of the classes of @codemode/errors.

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
const callServer = (tool, input) => {
  const { text, problem } = writtenInput(input);
  if (problem === undefined) return sendModule("tool", tool.name, text);
  const { serverId, toolName, exportName } = tool, message = exportName + "(input): the input " + problem;
  return refuseInput({ message, serverId, toolName, exportName, received: kindOf(input) });
};

const serverFunction = (path, { toolName, exportName }) => {
  const tool = { __proto__: null, name: path + "." + toolName, serverId: path, toolName, exportName };
  return freeze({ [exportName](input) { return callServer(tool, input); } }[exportName]);
};
