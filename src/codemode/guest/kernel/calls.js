// Calls of a module's imports: they never throw, but reject with an error class of @codemode/errors.

const rejectInvalidInput = (fields) => {
  const told = { __proto__: null, class: "SchemaValidationError", code: "VALIDATION", path: "", expected: "a JSON value" };
  const keys = ownKeys(fields);
  for (let i = 0; i < keys.length; i++) told[keys[i]] = fields[keys[i]];
  told.hint = "pass plain data: no functions, symbols or cycles";
  return rejectWith(makeModuleError(told, formatGuestStack(new Err().stack), ""));
};
const sendModuleRequest = (kind, name, text) => {
  if (finished) return rejectWith(new Err("the program has already ended"));
  const limit = findReachedLimit(kind);
  return limit === undefined ? sendRequest(kind, name, text, false) : rejectWith(makeCallLimitError(limit));
};
const callServerTool = (tool, input) => {
  const { text, problem } = encodeInput(input);
  if (problem === undefined) return sendModuleRequest("tool", tool.name, text);
  const { serverId, toolName, exportName } = tool, message = exportName + "(input): the input " + problem;
  return rejectInvalidInput({ message, serverId, toolName, exportName, received: getTypeName(input) });
};

const makeServerFunction = (path, { toolName, exportName }) => {
  const tool = { __proto__: null, name: path + "." + toolName, serverId: path, toolName, exportName };
  return freeze({ [exportName](input) { return callServerTool(tool, input); } }[exportName]);
};
