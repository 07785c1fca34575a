// The one function that the worker holds. Strings in, one string without ropes out; it never throws or returns a guest value.

// The binding cannot read a rope. slice() never returns one, even for the whole text. JSON text has no NUL and no lone surrogate.
const flatten = (text) => slice(text, 0);

const endProgram = (kind, json) => {
  if (finished) return;
  emit(kind, json); // may fail when memory is exhausted: a program has ended only when its last line is in the outbox
  finished = true;
};

const endWithError = (error, origin) => {
  const host = isObject(error) ? weakGet(errorOrigins, error) : undefined;
  endProgram("X", errorToJson(error, origin + (host === undefined ? "" : host)));
};

// The engine throws null when it has no memory left for an error object.
const makeInternalError = (message) =>
  freeze(create(null, { name: { value: "InternalError" }, message: { value: message } }));
const memoryOrNullError = makeInternalError("out of memory (or the program threw null)");
const outOfMemoryError = makeInternalError("out of memory");
const MEMORY_ORIGIN = ',"origin":"memory"';
const NO_MEMORY_LINE = flatten('X{"name":"InternalError","message":"out of memory (or of stack) as the program ended","code":"","stack":""}');
const NO_MEMORY_ORIGIN_LINE = flatten('X{"name":"InternalError","message":"out of memory (or of stack) as the program ended","code":"","stack":"","origin":"memory"}');

// Picks the line for a failure while the end of a program is reported. No unguarded guest code runs then, so null is the engine's.
const pickFallbackLine = (failed) => (shouldReportMemory && (failed === null || isEngineMemoryError(failed)) ? NO_MEMORY_ORIGIN_LINE : NO_MEMORY_LINE);

// Ends the program with an error even without memory or stack to encode it: a line that was made in advance then
// replaces the unread lines of the outbox.
const failProgram = (error, origin, line) => {
  try {
    const isMemoryError = shouldReportMemory && isOutOfMemory(error);
    const told = isMemoryError || isUnsetException(error) ? outOfMemoryError : memoryOrNullError;
    endWithError(isNullOrUnset(error) ? told : error, isMemoryError ? MEMORY_ORIGIN : origin);
  } catch (failed) {
    if (finished) return;
    outbox = line === undefined ? pickFallbackLine(failed) : line;
    finished = true;
  }
};
const handleProgramError = (error) => failProgram(error, "");

// The value of the last statement, as a JSON member, for a program whose own result is empty; "" without one.
const MAX_LAST_VALUE = 2000;
const PLAIN_NAME = /^[\w$]+$/;
const formatLastValue = (value) => {
  if (typeof value === "function") {
    // With an ending the function is the program's own, and its name is one that the program can call.
    const name = getEndingAction() === undefined ? "" : readSafely(value, "name", MAX_NAME_LENGTH);
    return (matchIn(PLAIN_NAME, name) === null ? "a function" : "the function " + name) + ", which nothing has called";
  }
  if (value instanceof NativePromise) return "a promise, which nothing has awaited";
  const text = toDisplayJson(value);
  return text === undefined ? toSafeText(value, MAX_LAST_VALUE) : text;
};
const encodeLastMember = () => {
  if (lastValue === undefined || lastValue.object.value === undefined) return "";
  try {
    return ',"last":' + stringify(clip(formatLastValue(lastValue.object.value), MAX_LAST_VALUE));
  } catch {
    return "";
  }
};

const encodeResult = (text, more) => {
  const tail = ',"unobserved":' + listUnobservedIds() + more + (resultWarnings === "" ? "}" : ',"warnings":[' + resultWarnings + "]}");
  if (text === undefined) return '{"value":null,"undefined":true' + tail;
  if (text.length > programSettings.max_result_bytes) return '{"bytes":' + utf8Length(text) + tail;
  return '{"value":' + stringify(text) + tail;
};

let shouldDrain = false; // whether a program whose result is known stays alive until its calls are settled
let canReturnText = false; // whether a result that is not JSON but has a text becomes that text
let shouldReportMemory = false; // whether the host is informed that memory exhaustion ended a program
let pendingResult; // {text, last}: the program's result while its calls are drained
const toTextIfNotJson = (value) =>
  typeof value === "bigint" || typeof value === "symbol" || typeof value === "function"
    ? toSafeText(value, programSettings.max_result_bytes + 1) : value;
const handleProgramResult = (value) => {
  let text;
  try {
    text = resultLimits === undefined ? toHostJson(canReturnText ? toTextIfNotJson(value) : value) : encodeBoundedResult(value);
    if (text === undefined && value !== undefined) throw new TypeErr("a " + typeof value + " is not a JSON value");
  } catch (error) {
    return failProgram(error, isNullOrUnset(error) ? "" : ',"origin":"result"');
  }
  try {
    if (text !== undefined && programSettings.max_output_bytes !== undefined) countOutput(utf8Length(text));
    const last = text === undefined ? encodeLastMember() : "";
    if (!shouldDrain) endProgram("V", encodeResult(text, last));
    else if (!finished) pendingResult = { __proto__: null, text, last };
  } catch (error) {
    failProgram(error, "");
  }
};
const endAfterDraining = () => {
  try {
    endProgram("V", encodeResult(pendingResult.text, pendingResult.last));
  } catch (error) {
    failProgram(error, "");
  }
};

// A program that returns nothing may be one function, or call one in its last statement: its value is then the result.
const getEndingAction = () => (isModule() ? moduleConfig.ends : given.ends);
// A function whose only parameter is `{ tools }` gets an object with the tools; any other parameter is the tools.
const DESTRUCTURED_TOOLS = /^(?:async\b\s*)?(?:function\b\s*[\w$]*\s*)?\(\s*\{\s*tools\s*,?\s*\}\s*[=,)]/;
const listEndingArguments = (ending) => {
  if (matchIn(DESTRUCTURED_TOOLS, functionText(ending)) !== null) return [{ __proto__: null, tools: G.tools }];
  return ending.length === 1 ? [G.tools] : [];
};
// A module's result is the value that it assigned, even while its last statement was awaited.
const handleModuleEnd = (value) => handleProgramResult(G.__codemode_result__ === undefined ? value : G.__codemode_result__);
const handleProgramEnd = (value) => {
  const ends = getEndingAction();
  const isEmptyResult = value === undefined || (typeof value === "function" && !canReturnText);
  const hasResult = isModule() ? value !== undefined && ends === "call" : !isEmptyResult;
  if (hasResult || ends === undefined || ends === "report" || lastValue === undefined) return handleProgramResult(value);
  try {
    let last = lastValue.object.value;
    const isCalled = ends === "call" && typeof last === "function";
    if (isCalled && last.length > 1) return handleProgramResult(value);
    lastValue.object.value = undefined;
    if (isCalled) last = apply(last, undefined, listEndingArguments(last));
    then(new NativePromise((resolve) => resolve(last)), isModule() ? handleModuleEnd : handleProgramResult, handleProgramError);
  } catch (error) {
    handleProgramError(error);
  }
};

// The program is the body of an async function. Its own text must be the whole of that function: a program that closes
// the function too soon would otherwise run statements outside it.
const compile = (source) => {
  const text = wrapper.open + source + wrapper.close;
  const program = indirectEval(text);
  if (typeof program !== "function" || functionText(program) !== slice(text, 1, -1))
    throw new SyntaxErr("unexpected '}': the program closes a block that it did not open");
  return program;
};

// The same for a program whose last statement is an expression, from `start` to `end`, and whose value is kept: it is
// parenthesised and assigned to a member, which changes neither its meaning nor the name of a function.
const findUnusedName = (source) => {
  let name = "$last";
  while (indexOf(source, name) >= 0) name += name;
  return name;
};
const compileWithLastValue = (source, start, end) => {
  const name = findUnusedName(source), assignment = name + ".value=(", head = "((" + name + ")=>";
  const open = head + slice(wrapper.open, 1);
  const text = open + slice(source, 0, start) + assignment + slice(source, start, end) + ")" + slice(source, end) + wrapper.close;
  const outer = indirectEval(text);
  if (typeof outer !== "function" || functionText(outer) !== slice(text, 1, -1)) throw new SyntaxErr("not one function");
  const program = apply(outer, undefined, [makeLastValueHolder(start, assignment.length)]);
  if (typeof program !== "function" || functionText(program) !== slice(text, head.length, -1)) throw new SyntaxErr("not one function");
  wrapper = freeze({ __proto__: null, open, close: wrapper.close });
  return program;
};
const compileProgram = (config) => {
  const last = given.last;
  if (last === undefined) return compileWithDraft(config.js, config.draft);
  try {
    if (given.last_name === undefined) return compileWithLastValue(config.js, last[0], last[1]);
    const source = config.js + "\n;", start = source.length;
    return compileWithLastValue(source + given.last_name, start, start + given.last_name.length);
  } catch {
    lastValue = undefined; // compile the unchanged text instead, so that its own error is reported
    outbox = "";
    return compile(config.js);
  }
};

// Text that the parser did not understand runs unchanged if it is JavaScript. Otherwise the error is about the draft,
// which keeps only what was not understood. A draft that compiles does not run, since its meaning may differ.
const compileWithDraft = (source, draft) => {
  if (draft === undefined) return compile(source);
  if (!draft.is_ambiguous)
    try {
      return compile(source);
    } catch {}
  programText = draft.js;
  compile(draft.js);
  const error = new SyntaxErr("this is not understood, as TypeScript or as JavaScript: write it without types here");
  defineHidden(error, "stack", "program.js:" + draft.line + ":" + draft.column);
  throw error;
};

// After the last line of a program the engine reads the text that closes its function, which the author did not write.
const UNPAIRED_BRACKETS =
  "this ends here before it is complete, or a bracket too many has closed it: pair all brackets, braces and parentheses";
const PROGRAM_ROW = /program\.js:(\d+)/;
const getEndPosition = (text) => {
  let row = 1, start = 0;
  for (let end; (end = indexOf(text, "\n", start)) >= 0; start = end + 1) row++;
  return { row, column: text.length - start + 1 };
};
const isSpace = (unit) => unit <= 0x20 || unit === 0x2028 || unit === 0x2029;
const relocateWrapperError = (error) => {
  if (given.places !== undefined) return error;
  const found = matchIn(PROGRAM_ROW, formatGuestStack(readSafely(error, "stack", MAX_STACK_LENGTH)));
  if (found === null || parseInteger(found[1], 10) <= getEndPosition(programText).row) return error;
  let length = programText.length;
  while (length > 0 && isSpace(charCodeAt(programText, length - 1))) length--;
  const { row, column } = getEndPosition(slice(programText, 0, length)), early = new SyntaxErr(UNPAIRED_BRACKETS);
  defineHidden(early, "stack", "program.js:" + row + ":" + column);
  return early;
};

const run = (config) => {
  programSettings = config;
  seed = config.seed;
  clock = config.now_ms;
  resultLimits = config.result;
  wrapper = WRAPPERS[config.wrapper];
  isConsoleStable = config.console === "stable";
  shouldDrain = config.drains === true;
  canReturnText = shouldReportMemory = config.says_in_text === true;
  installGlobals(config);
  configureSidecar(config.sidecar);
  configureContent(config.content);
  configureRich(config.values);
  if (config.shadowed !== undefined) shadowGlobals(config);
  setLanguageNames(config.language_names);
  programText = config.js;
  if (isModule()) return "ok"; // the engine evaluates it; the worker then calls watch() with its promise, or refused()
  let program;
  try {
    program = compileProgram(config);
  } catch (error) {
    outbox = ""; // discard output of a text that turned out not to be one function
    failProgram(relocateWrapperError(error), ',"origin":"syntax"');
    return "ok";
  }
  if (config.compile_only === true) endProgram("V", encodeResult(undefined, ""));
  else then((programPromise = apply(program, undefined, wrapperArguments)), handleProgramEnd, handleProgramError);
  return "ok";
};

// A callback that finds no memory leaves its promise pending: the engine has no room to reject it either. A program
// that then waits for nothing, with little memory left now or when its own statements ended, has lost such a callback.
const callbackMemoryError = makeInternalError("out of memory in a callback");
const isMemoryLow = () => {
  try {
    new MemoryReserve(floor(programSettings.memory_limit_bytes / 16));
    return false;
  } catch {
    return true;
  }
};
// The engine may have settled the program's own promise without memory to run our callback: subscribing again finds out.
let programPromise, hasRechecked = false;
const RUN_JOBS_AGAIN = "again";
const shouldRecheckPromise = () =>
  shouldReportMemory && !hasRechecked && !finished && unanswered === 0 && pendingResult === undefined && programPromise !== undefined;
let wasMemoryFull = false; // when the program's own statements ended, as the worker reported it
const isStalledByMemory = () => unanswered === 0 && (isModule() || shouldReportMemory) && (wasMemoryFull || isMemoryLow());

// The engine's own promise of a module's evaluation. The result property holds plain data by then: it can neither be
// deleted nor become an accessor.
const watch = (promise, isMemoryFull) => {
  wasMemoryFull = isMemoryFull;
  try {
    then(promise, () => handleProgramEnd(G.__codemode_result__), handleProgramError);
  } catch (error) {
    failProgram(error, "");
  }
  return "ok";
};
// The engine's error for a text that it does not evaluate: not a module, too large, or too deep. The engine has no
// module loader, so it reports an import that the analysis missed in the same way.
const IMPORT_NOT_UNDERSTOOD = "an import is not understood: write each of them, and what is exported again, on a line of its own";
const refused = (text) => {
  const colon = indexOf(text, ": "), name = colon < 0 ? "" : slice(text, 0, colon);
  if (indexOf(text, "out of memory") >= 0 || colon < 0) failProgram(null, "");
  else if (name === "ReferenceError") failProgram(makeEngineError("SyntaxError", IMPORT_NOT_UNDERSTOOD), ',"origin":"syntax"');
  else failProgram(makeEngineError(name, slice(text, colon + 2)), name === "SyntaxError" ? ',"origin":"syntax"' : "");
  return "ok";
};
const makeEngineError = (name, text) => {
  const lines = indexOf(text, "\n"), error = new Err(lines < 0 ? text : slice(text, 0, lines));
  defineHidden(error, "name", name);
  defineHidden(error, "stack", lines < 0 ? "" : formatGuestStack(slice(text, lines + 1)));
  return error;
};

const drain = () => {
  if (pendingResult !== undefined && inFlight === 0 && catalogInFlight === 0) endAfterDraining();
  if (shouldRecheckPromise()) {
    hasRechecked = true;
    then(programPromise, handleProgramEnd, handleProgramError);
    return RUN_JOBS_AGAIN;
  }
  if (!finished && isStalledByMemory()) failProgram(callbackMemoryError, shouldReportMemory ? MEMORY_ORIGIN : "");
  if (!finished) emit("T", '{"in_flight":' + inFlight + "}");
  const lines = flatten(outbox);
  outbox = "";
  return lines;
};

// Nothing of this turn was sent yet, so a turn that cannot be read out ends the program.
const drainSafely = () => {
  try {
    return drain();
  } catch (failed) {
    finished = true;
    return pickFallbackLine(failed);
  }
};

// After the worker's warm-up: restore every piece of state that a program changes.
const reset = () => {
  outbox = "";
  finished = false;
  nextId = 1;
  unanswered = 0;
  wasMemoryFull = hasRechecked = false;
  programPromise = programSettings = resultLimits = undefined;
  inFlight = bridgeRequests = catalogRequests = catalogInFlight = consoleBytes = consoleLines = noticeCount = noticeBytes = 0;
  outputBytes = outputItemCount = yieldCount = 0;
  pendingResult = undefined;
  shouldDrain = canReturnText = shouldReportMemory = false;
  allTools = scopes = undefined;
  clearTimers();
  isConsoleFull = false;
  programText = "";
  isProgramAscii = lastValue = undefined;
  mapClear(slots);
  mapClear(toolViews);
  toolsRoot.members = languageNames = undefined;
  seed = "";
  configureSidecar(undefined);
  configureContent(undefined);
  configureRich(undefined);
  uninstallGlobals();
  wrapperArguments = [];
  resultWarnings = "";
  return "ok";
};

const formatRuntimeError = (operation, error) => {
  try {
    const isMemoryFull = error === null || isEngineMemoryError(error);
    return flatten("kernel-error: " + operation + ": " + (isMemoryFull ? "out of memory" : readSafely(error, "message", MAX_NAME_LENGTH)));
  } catch {
    return "kernel-error: out of memory";
  }
};

// `text` is a string, except for the `watch` operations.
const dispatchOperation = (operation, text) => {
  try {
    if (operation === "finished") return finished ? "1" : "0";
    if (operation === "drain") return drainSafely();
    if (operation === "deliver") return settle(parseAnswer(text, undefined));
    if (operation === "deliver exactly") return settle(parseAnswer(text, readExactly));
    if (operation === "hold") return holdText(text);
    if (operation === "hold part") return holdPart(text, false);
    if (operation === "hold last part") return holdPart(text, true);
    if (operation === "watch") return watch(text, false);
    if (operation === "watch full") return watch(text, true);
    if (operation === "refused") return refused(text);
    if (operation === "run") return run(parse(text));
    if (operation === "run exactly") return run(parse(text, readExactly));
    if (operation === "reset") return reset();
    return "kernel-error: unknown operation";
  } catch (error) {
    return formatRuntimeError(operation, error);
  }
};
return freeze(dispatchOperation);
