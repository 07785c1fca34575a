// The one function the worker holds. Text in, flat text out; it never throws and never returns a guest value.

// The binding cannot read a rope; a slice is none, be it of the whole. JSON text has no NUL and no lone surrogate in it.
const flat = (text) => slice(text, 0);

const end = (kind, json) => {
  if (finished) return;
  emit(kind, json); // may fail for want of memory: a program has ended only when its last line is in the outbox
  finished = true;
};

const endWithError = (error, origin) => {
  const host = isObject(error) ? weakGet(hostErrors, error) : undefined;
  end("X", describeError(error, origin + (host === undefined ? "" : host)));
};

// The engine throws null when it has no memory left for an error object.
const internalError = (message) =>
  freeze(create(null, { name: { value: "InternalError" }, message: { value: message } }));
const outOfMemoryOrNull = internalError("out of memory (or the program threw null)");
const outOfMemory = internalError("out of memory");
const MEMORY_ORIGIN = ',"origin":"memory"';
const NO_MEMORY_LINE = flat('X{"name":"InternalError","message":"out of memory (or of stack) as the program ended","code":"","stack":""}');
const NO_MEMORY_TOLD = flat('X{"name":"InternalError","message":"out of memory (or of stack) as the program ended","code":"","stack":"","origin":"memory"}');

// What fails while the kernel says how a program ended: nothing of the guest's runs unfenced then, so null is the engine's.
const unsaid = (failed) => (tellsOfMemory && (failed === null || isEnginesOwn(failed)) ? NO_MEMORY_TOLD : NO_MEMORY_LINE);

// Says how the program ended even when there is no memory, or stack, to say it with: by a line that is there already, for
// which the lines not yet read make way.
const endFenced = (error, origin, line) => {
  try {
    const isMemory = tellsOfMemory && isOutOfMemory(error);
    const told = isMemory || isNothing(error) ? outOfMemory : outOfMemoryOrNull;
    endWithError(saysNothing(error) ? told : error, isMemory ? MEMORY_ORIGIN : origin);
  } catch (failed) {
    if (finished) return;
    outbox = line === undefined ? unsaid(failed) : line;
    finished = true;
  }
};
const programThrew = (error) => endFenced(error, "");

// What a program that returned nothing left as the value of its last statement, as a member; "" for nothing.
const MAX_LAST_VALUE = 2000;
const textOfLast = (value) => {
  if (typeof value === "function") return "a function, which nothing has called";
  if (value instanceof NativePromise) return "a promise, which nothing has awaited";
  const text = toShown(value);
  return text === undefined ? safeText(value, MAX_LAST_VALUE) : text;
};
const lastMember = () => {
  if (lastValue === undefined || lastValue.object.value === undefined) return "";
  try {
    return ',"last":' + stringify(clip(textOfLast(lastValue.object.value), MAX_LAST_VALUE));
  } catch {
    return "";
  }
};

const resultJson = (text, more) => {
  const tail = ',"unobserved":' + unobservedIds() + more + (resultWarnings === "" ? "}" : ',"warnings":[' + resultWarnings + "]}");
  if (text === undefined) return '{"value":null,"undefined":true' + tail;
  if (text.length > limits.max_result_bytes) return '{"bytes":' + utf8Length(text) + tail;
  return '{"value":' + stringify(text) + tail;
};

let drains = false; // whether a program that has returned lives on until its calls have their answers
let saysInText = false; // whether what is no JSON at all, but has a text, is returned as that
let tellsOfMemory = false; // whether the host is told that it was memory that ended a program
let returned; // {text, last}: what it has returned, while it does
const textOfResult = (value) =>
  typeof value === "bigint" || typeof value === "symbol" || typeof value === "function"
    ? safeText(value, limits.max_result_bytes + 1) : value;
const programReturned = (value) => {
  let text;
  try {
    text = resultRule === undefined ? toSent(saysInText ? textOfResult(value) : value) : boundedJson(value);
    if (text === undefined && value !== undefined) throw new TypeErr("a " + typeof value + " is not a JSON value");
  } catch (error) {
    return endFenced(error, saysNothing(error) ? "" : ',"origin":"result"');
  }
  try {
    if (text !== undefined && limits.max_output_bytes !== undefined) admitOutput(utf8Length(text));
    const last = text === undefined ? lastMember() : "";
    if (!drains) end("V", resultJson(text, last));
    else if (!finished) returned = { __proto__: null, text, last };
  } catch (error) {
    endFenced(error, "");
  }
};
const endDrained = () => {
  try {
    end("V", resultJson(returned.text, returned.last));
  } catch (error) {
    endFenced(error, "");
  }
};

// A program that returns nothing may be one function, or call one as its last statement: what that gives is its result.
const usesLast = () => (isModule() ? moduleGiven.ends : given.ends);
// A module's result is what it assigned, also while its last statement was awaited.
const moduleEnded = (value) => programReturned(G.__codemode_result__ === undefined ? value : G.__codemode_result__);
const programEnded = (value) => {
  const ends = usesLast();
  const isUnsaid = value === undefined || (typeof value === "function" && !saysInText);
  const givesResult = isModule() ? value !== undefined && ends === "call" : !isUnsaid;
  if (givesResult || ends === undefined || lastValue === undefined) return programReturned(value);
  try {
    let last = lastValue.object.value;
    lastValue.object.value = undefined;
    if (ends === "call" && typeof last === "function") {
      if (last.length > 1) return programReturned(value);
      last = apply(last, undefined, last.length === 1 ? [G.tools] : []);
    }
    then(new NativePromise((resolve) => resolve(last)), isModule() ? moduleEnded : programReturned, programThrew);
  } catch (error) {
    programThrew(error);
  }
};

// The program is the body of an async function. Its own text must be all of what was evaluated: a program that closes
// the function early would otherwise run statements outside it.
const compile = (source) => {
  const text = wrapper.open + source + wrapper.close;
  const program = indirectEval(text);
  if (typeof program !== "function" || functionText(program) !== slice(text, 1, -1))
    throw new SyntaxErr("unexpected '}': the program closes a block that it did not open");
  return program;
};

// The same of a program whose last statement is an expression, from `start` to `end`, which keeps its value: put in
// parentheses and assigned to a member, it means what it meant, and a function gets no name of it.
const nameNotIn = (source) => {
  let name = "$last";
  while (indexOf(source, name) >= 0) name += name;
  return name;
};
const compileKeepingLast = (source, start, end) => {
  const name = nameNotIn(source), begin = name + ".value=(", head = "((" + name + ")=>";
  const open = head + slice(wrapper.open, 1);
  const text = open + slice(source, 0, start) + begin + slice(source, start, end) + ")" + slice(source, end) + wrapper.close;
  const outer = indirectEval(text);
  if (typeof outer !== "function" || functionText(outer) !== slice(text, 1, -1)) throw new SyntaxErr("not one function");
  const program = apply(outer, undefined, [keepLastValue(start, begin.length)]);
  if (typeof program !== "function" || functionText(program) !== slice(text, head.length, -1)) throw new SyntaxErr("not one function");
  wrapper = freeze({ __proto__: null, open, close: wrapper.close });
  return program;
};
const compileProgram = (config) => {
  const last = given.last;
  if (last === undefined) return compileUnlessUnclear(config.js, config.draft);
  try {
    if (given.last_name === undefined) return compileKeepingLast(config.js, last[0], last[1]);
    const source = config.js + "\n;", start = source.length;
    return compileKeepingLast(source + given.last_name, start, start + given.last_name.length);
  } catch {
    lastValue = undefined; // read as it is, the program says what is wrong with it
    outbox = "";
    return compile(config.js);
  }
};

// What the parser did not understand runs as it is when it is JavaScript. Else the error is about the draft, in which
// only that is left which was not understood; a draft that compiles does not run, for it may say something else.
const compileUnlessUnclear = (source, draft) => {
  if (draft === undefined) return compile(source);
  if (!draft.is_ambiguous)
    try {
      return compile(source);
    } catch {}
  programText = draft.js;
  compile(draft.js);
  const error = new SyntaxErr("this is not understood, as TypeScript or as JavaScript: write it without types here");
  method(error, "stack", "program.js:" + draft.line + ":" + draft.column);
  throw error;
};

// Behind the last line of a program the engine reads what closes its function, which its author has not written.
const NOT_PAIRED =
  "this ends here before it is complete, or a bracket too many has closed it: pair all brackets, braces and parentheses";
const PROGRAM_ROW = /program\.js:(\d+)/;
const lastPlace = (text) => {
  let row = 1, start = 0;
  for (let end; (end = indexOf(text, "\n", start)) >= 0; start = end + 1) row++;
  return { row, column: text.length - start + 1 };
};
const isSpace = (unit) => unit <= 0x20 || unit === 0x2028 || unit === 0x2029;
const withoutOurs = (error) => {
  if (given.places !== undefined) return error;
  const found = matchIn(PROGRAM_ROW, guestStack(safeRead(error, "stack", MAX_STACK)));
  if (found === null || parseInteger(found[1], 10) <= lastPlace(programText).row) return error;
  let length = programText.length;
  while (length > 0 && isSpace(charCodeAt(programText, length - 1))) length--;
  const { row, column } = lastPlace(slice(programText, 0, length)), early = new SyntaxErr(NOT_PAIRED);
  method(early, "stack", "program.js:" + row + ":" + column);
  return early;
};

const run = (config) => {
  limits = config;
  seed = config.seed;
  clock = config.now_ms;
  resultRule = config.result;
  wrapper = WRAPPERS[config.wrapper];
  isStable = config.console === "stable";
  drains = config.drains === true;
  saysInText = tellsOfMemory = config.says_in_text === true;
  install(config);
  takeSidecar(config.sidecar);
  takeContent(config.content);
  takeRich(config.values);
  if (config.shadowed !== undefined) shadow(config);
  takeLanguageNames(config.language_names);
  programText = config.js;
  if (isModule()) return "ok"; // the engine evaluates it, and what it has made of it comes to watch() or refused()
  let program;
  try {
    program = compileProgram(config);
  } catch (error) {
    outbox = ""; // what ran before the text turned out not to be one function does not count
    endFenced(withoutOurs(error), ',"origin":"syntax"');
    return "ok";
  }
  if (config.compile_only === true) end("V", resultJson(undefined, ""));
  else then((ownPromise = apply(program, undefined, wrapperArguments)), programEnded, programThrew);
  return "ok";
};

// What finds no memory in a callback leaves its promise as it is: the engine has no room to reject it either. A program
// that then waits for nothing, with next to no memory left now or as its own statements ended, has forgotten nothing.
const lostForMemory = internalError("out of memory in a callback");
const isLittleLeft = () => {
  try {
    new Reserve(floor(limits.memory_limit_bytes / 16));
    return false;
  } catch {
    return true;
  }
};
// The engine may have rejected the program's own promise and found no memory to say so: then who asks again is told.
let ownPromise, hasAsked = false;
const AGAIN = "again";
const mayBeForgotten = () =>
  tellsOfMemory && !hasAsked && !finished && unanswered === 0 && returned === undefined && ownPromise !== undefined;
let wasFull = false; // as its own statements ended; the worker knows
const isLostForMemory = () => unanswered === 0 && (isModule() || tellsOfMemory) && (wasFull || isLittleLeft());

// The engine's own promise of a module's evaluation. What the program has left is plain data by then: the property can
// neither be taken away nor become an accessor.
const watch = (promise, isFull) => {
  wasFull = isFull;
  try {
    then(promise, () => programEnded(G.__codemode_result__), programThrew);
  } catch (error) {
    endFenced(error, "");
  }
  return "ok";
};
// What the engine says of a text that it does not evaluate: no module, too large, or too deep. It loads nothing, and so
// says of an import that the analysis has not seen.
const HIDDEN_IMPORT = "an import is not understood: write each of them, and what is exported again, on a line of its own";
const refused = (text) => {
  const colon = indexOf(text, ": "), name = colon < 0 ? "" : slice(text, 0, colon);
  if (indexOf(text, "out of memory") >= 0 || colon < 0) endFenced(null, "");
  else if (name === "ReferenceError") endFenced(refusal("SyntaxError", HIDDEN_IMPORT), ',"origin":"syntax"');
  else endFenced(refusal(name, slice(text, colon + 2)), name === "SyntaxError" ? ',"origin":"syntax"' : "");
  return "ok";
};
const refusal = (name, text) => {
  const lines = indexOf(text, "\n"), error = new Err(lines < 0 ? text : slice(text, 0, lines));
  method(error, "name", name);
  method(error, "stack", lines < 0 ? "" : guestStack(slice(text, lines + 1)));
  return error;
};

const drain = () => {
  if (returned !== undefined && inFlight === 0 && questions === 0) endDrained();
  if (mayBeForgotten()) {
    hasAsked = true;
    then(ownPromise, programEnded, programThrew);
    return AGAIN;
  }
  if (!finished && isLostForMemory()) endFenced(lostForMemory, tellsOfMemory ? MEMORY_ORIGIN : "");
  if (!finished) emit("T", '{"in_flight":' + inFlight + "}");
  const lines = flat(outbox);
  outbox = "";
  return lines;
};

// Nothing of this turn was sent yet, so a turn that cannot be read out is how the program ended.
const drainFenced = () => {
  try {
    return drain();
  } catch (failed) {
    finished = true;
    return unsaid(failed);
  }
};

// After the worker's rehearsal: every piece of state that a run leaves behind, as it was.
const reset = () => {
  outbox = "";
  finished = false;
  nextId = 1;
  unanswered = 0;
  wasFull = hasAsked = false;
  ownPromise = limits = resultRule = undefined;
  inFlight = bridgeRequests = catalogRequests = questions = consoleBytes = consoleLines = notices = noticeBytes = 0;
  outputBytes = outputItems = yields = 0;
  returned = undefined;
  drains = saysInText = tellsOfMemory = false;
  allTools = scopes = undefined;
  clearTimers();
  consoleFull = false;
  programText = "";
  programIsAscii = lastValue = undefined;
  mapClear(slots);
  mapClear(views);
  toolsRoot.members = languageNames = undefined;
  seed = "";
  takeSidecar(undefined);
  takeContent(undefined);
  takeRich(undefined);
  uninstall();
  wrapperArguments = [];
  resultWarnings = "";
  return "ok";
};

const failure = (operation, error) => {
  try {
    const isFull = error === null || isEnginesOwn(error);
    return flat("kernel-error: " + operation + ": " + (isFull ? "out of memory" : safeRead(error, "message", MAX_NAME)));
  } catch {
    return "kernel-error: out of memory";
  }
};

// `text` is a string, but for `watch`.
const kernel = (operation, text) => {
  try {
    if (operation === "finished") return finished ? "1" : "0";
    if (operation === "drain") return drainFenced();
    if (operation === "deliver") return settle(readAnswer(text, undefined));
    if (operation === "deliver exactly") return settle(readAnswer(text, readExactly));
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
    return failure(operation, error);
  }
};
return freeze(kernel);
