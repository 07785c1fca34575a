// Saved programs: functions whose source comes with the program, compiled when first called. A call first asks the host
// to validate the input; then the source runs here, and its tool calls count as the program's own.

// Each saved program is evaluated at line numbers of its own, so that a frame's line tells which one it is in.
const FIRST_SAVED_ROW = 131072, ROWS_PER_SAVED = 4096, MAX_SAVED_DEPTH = 4;
const SAVED_MODULE = "@codemode/saved", SAVED_PATH = "saved";
const repeatText = uncurry(Str.prototype.repeat);

let savedConfig; // {programs: {name: {js, number}}}
let savedNames = [], savedDirective = ""; // names by number
const savedFunctions = new NativeMap(); // name -> function

const findSavedProgram = (name) => {
  const own = getOwnPropertyDescriptor(savedConfig.programs, name);
  return own === undefined ? undefined : own.value;
};
const makeSavedHead = () =>
  "(async function(" + (shadowParameters === "" ? "" : shadowParameters + ",") + "input,saved,$import){" +
  savedDirective;
const compileSaved = (name, program) => {
  const known = mapGet(savedFunctions, name);
  if (known !== undefined) return known;
  const text = makeSavedHead() + program.js + "\n})";
  const made = indirectEval(repeatText("\n", FIRST_SAVED_ROW + program.number * ROWS_PER_SAVED - 1) + text);
  if (typeof made !== "function" || functionText(made) !== slice(text, 1, -1))
    throw new SyntaxErr("saved." + name + " closes a block that it did not open");
  mapSet(savedFunctions, name, made);
  return made;
};

const formatSavedChain = (chain, name) => {
  let text = "";
  for (let i = 0; i < chain.length; i++) text += "saved." + chain[i] + " calls ";
  return text + "saved." + name;
};
const findChainProblem = (chain, name) => {
  for (let i = 0; i < chain.length; i++) if (chain[i] === name) return "a cycle: " + formatSavedChain(chain, name);
  return chain.length >= MAX_SAVED_DEPTH ? "deeper than " + MAX_SAVED_DEPTH + ": " + formatSavedChain(chain, name) : undefined;
};

let isSavedRequest = false; // true while the runtime itself requests a saved program, which no tool name may do
const isSavedCallByName = (name) => savedConfig !== undefined && !isSavedRequest && indexOf(name, "saved.") === 0;
const requestSaved = (path, args) => {
  isSavedRequest = true;
  try {
    if (!isModule()) return request("tool", path, args);
    const { text, problem } = encodeInput(args[0]);
    return problem === undefined ? sendModuleRequest("tool", path, text) : rejectInvalidInput({ message: path + "(input): the input " + problem });
  } finally {
    isSavedRequest = false;
  }
};
const savedImport = freeze({ $import(specifier) { return importModule(specifier); } }.$import);
const rejectImport = freeze({
  $import(specifier) { return rejectWith(new TypeErr("there is no module " + stringify(specifier) + " here: imports are of codemode.run")); },
}.$import);
const runSaved = (name, program, chain, input) => {
  const made = compileSaved(name, program), args = [wrapperArguments[0]];
  args.length = shadowParameters === "" ? 0 : countNames(shadowParameters);
  args[args.length] = input;
  args[args.length] = makeSavedProxy([...chain, name]);
  args[args.length] = isModule() ? savedImport : rejectImport;
  return apply(made, undefined, args);
};
const countNames = (parameters) => {
  let count = 1;
  for (let at = indexOf(parameters, ","); at >= 0; at = indexOf(parameters, ",", at + 1)) count++;
  return count;
};

const callSaved = (path, args, chain) => {
  requireRunning();
  const name = slice(path, SAVED_PATH.length + 1);
  if (name === "$save") {
    const prepared = requestSaved("saved.$prepare", args);
    observe(prepared);
    return then(prepared, (told) => requestSaved("saved.$save", [told]), undefined);
  }
  const program = findSavedProgram(name);
  if (program === undefined) return requestSaved(path, args); // the host's error says what is wrong
  const problem = findChainProblem(chain, name);
  if (problem !== undefined) return rejectWith(new Err(problem));
  const validated = requestSaved(path, args);
  observe(validated);
  return then(validated, (input) => runSaved(name, program, chain, input), undefined);
};

const makeSavedProxy = (chain) => {
  const own = makeToolProxy(makeRootNode("saved", SAVED_PATH, (path, args) => callSaved(path, args, chain), savedNames));
  preventExtensions(own);
  return own;
};
const makeSavedNamespace = () => {
  const exports = create(null);
  exports.default = makeSavedProxy([]);
  const names = [...savedNames, "$search", "$save"];
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    exports[name] = freeze({ [name](...args) { return callSaved("saved." + name, args, []); } }[name]);
  }
  return makeModuleNamespace(exports);
};
let savedModule; // the namespace, once a module has imported it

const configureSaved = (told, kind) => {
  savedConfig = told;
  savedDirective = kind === "sloppy" ? "" : DIRECTIVES.strict;
  savedModule = undefined;
  savedNames = [];
  mapClear(savedFunctions);
  if (told === undefined) return;
  const names = ownKeys(told.programs);
  for (let i = 0; i < names.length; i++) savedNames[told.programs[names[i]].number] = names[i];
};
const getSavedModule = () => {
  if (savedConfig === undefined) return undefined;
  if (savedModule === undefined) savedModule = makeSavedNamespace();
  return savedModule;
};

// [name, row in it] of the saved program that an engine row is in; undefined for the program itself.
const findSavedPosition = (row) => {
  if (savedConfig === undefined || row < FIRST_SAVED_ROW) return undefined;
  const number = floor((row - FIRST_SAVED_ROW) / ROWS_PER_SAVED), name = savedNames[number];
  return name === undefined ? undefined : [name, row - FIRST_SAVED_ROW - number * ROWS_PER_SAVED + 1];
};
const toSavedColumn = (row, column) => (row === 1 && column > makeSavedHead().length ? column - makeSavedHead().length : column);
