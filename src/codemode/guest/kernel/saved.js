// Saved programs: functions whose texts came with the program, each compiled when it is first called. A call asks the host
// first, which validates the input; then the text runs here, and its calls are those of the program.

// Text of saved program number n stands behind so many line breaks, so that a frame tells whose it is.
const SAVED_ROW = 131072, SAVED_ROWS = 4096, MAX_SAVED_DEPTH = 4;
const SAVED_MODULE = "@codemode/saved", SAVED_PATH = "saved";
const repeated = uncurry(Str.prototype.repeat);

let savedGiven; // {programs: {name: {js, number}}}
let savedNames = [], savedDirective = ""; // names by number
const savedFunctions = new NativeMap(); // name -> function

const savedOf = (name) => {
  const own = getOwnPropertyDescriptor(savedGiven.programs, name);
  return own === undefined ? undefined : own.value;
};
const savedHead = () =>
  "(async function(" + (shadowParameters === "" ? "" : shadowParameters + ",") + "input,saved,$import){" +
  savedDirective;
const compileSaved = (name, program) => {
  const known = mapGet(savedFunctions, name);
  if (known !== undefined) return known;
  const text = savedHead() + program.js + "\n})";
  const made = indirectEval(repeated("\n", SAVED_ROW + program.number * SAVED_ROWS - 1) + text);
  if (typeof made !== "function" || functionText(made) !== slice(text, 1, -1))
    throw new SyntaxErr("saved." + name + " closes a block that it did not open");
  mapSet(savedFunctions, name, made);
  return made;
};

const chainText = (chain, name) => {
  let text = "";
  for (let i = 0; i < chain.length; i++) text += "saved." + chain[i] + " calls ";
  return text + "saved." + name;
};
const chainProblem = (chain, name) => {
  for (let i = 0; i < chain.length; i++) if (chain[i] === name) return "a cycle: " + chainText(chain, name);
  return chain.length >= MAX_SAVED_DEPTH ? "deeper than " + MAX_SAVED_DEPTH + ": " + chainText(chain, name) : undefined;
};

let asksSaved = false; // while a request is made that nobody makes by the name of a tool
const isSavedByName = (name) => savedGiven !== undefined && !asksSaved && indexOf(name, "saved.") === 0;
const askSaved = (path, args) => {
  asksSaved = true;
  try {
    if (!isModule()) return request("tool", path, args);
    const { text, problem } = writtenInput(args[0]);
    return problem === undefined ? sendModule("tool", path, text) : refuseInput({ message: path + "(input): the input " + problem });
  } finally {
    asksSaved = false;
  }
};
const savedImport = freeze({ $import(specifier) { return load(specifier); } }.$import);
const noImport = freeze({
  $import(specifier) { return rejected(new TypeErr("there is no module " + stringify(specifier) + " here: imports are of codemode.run")); },
}.$import);
const runSaved = (name, program, chain, input) => {
  const made = compileSaved(name, program), args = [wrapperArguments[0]];
  args.length = shadowParameters === "" ? 0 : namesCount(shadowParameters);
  args[args.length] = input;
  args[args.length] = makeSaved([...chain, name]);
  args[args.length] = isModule() ? savedImport : noImport;
  return apply(made, undefined, args);
};
const namesCount = (parameters) => {
  let count = 1;
  for (let at = indexOf(parameters, ","); at >= 0; at = indexOf(parameters, ",", at + 1)) count++;
  return count;
};

const callSaved = (path, args, chain) => {
  requireRunning();
  const name = slice(path, SAVED_PATH.length + 1);
  if (name === "$save") {
    const prepared = askSaved("saved.$prepare", args);
    observe(prepared);
    return then(prepared, (told) => askSaved("saved.$save", [told]), undefined);
  }
  const program = savedOf(name);
  if (program === undefined) return askSaved(path, args); // the host says what is wrong with it
  const problem = chainProblem(chain, name);
  if (problem !== undefined) return rejected(new Err(problem));
  const validated = askSaved(path, args);
  observe(validated);
  return then(validated, (input) => runSaved(name, program, chain, input), undefined);
};

const makeSaved = (chain) => {
  const own = toolProxy(rootNode("saved", SAVED_PATH, (path, args) => callSaved(path, args, chain), savedNames));
  preventExtensions(own);
  return own;
};
const savedNamespace = () => {
  const exports = create(null);
  exports.default = makeSaved([]);
  const names = [...savedNames, "$search", "$save"];
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    exports[name] = freeze({ [name](...args) { return callSaved("saved." + name, args, []); } }[name]);
  }
  return namespaceOf(exports);
};
let savedExports; // the namespace, once a module has imported it

const takeSaved = (told, kind) => {
  savedGiven = told;
  savedDirective = kind === "sloppy" ? "" : DIRECTIVES.strict;
  savedExports = undefined;
  savedNames = [];
  mapClear(savedFunctions);
  if (told === undefined) return;
  const names = ownKeys(told.programs);
  for (let i = 0; i < names.length; i++) savedNames[told.programs[names[i]].number] = names[i];
};
const givenSaved = () => {
  if (savedGiven === undefined) return undefined;
  if (savedExports === undefined) savedExports = savedNamespace();
  return savedExports;
};

// Which saved program a row of the engine's is in: [name, row in it]; undefined for the program itself.
const savedPlace = (row) => {
  if (savedGiven === undefined || row < SAVED_ROW) return undefined;
  const number = floor((row - SAVED_ROW) / SAVED_ROWS), name = savedNames[number];
  return name === undefined ? undefined : [name, row - SAVED_ROW - number * SAVED_ROWS + 1];
};
const savedColumn = (row, column) => (row === 1 && column > savedHead().length ? column - savedHead().length : column);
