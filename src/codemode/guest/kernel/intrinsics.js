// A worker shares its memory with others until it writes, and the first write to a page copies the page. The engine
// allocates a variable's cell when it creates the first function that refers to it. So this function, which is never
// called, refers first to the variables that programs write, and their cells are adjacent in memory.
const allocateCellsTogether = () => [
  outbox, finished, nextId, inFlight, unanswered, bridgeRequests, catalogRequests, catalogInFlight, programSettings, given, contentTag,
  hasContents, shownContentCount, hasRichValues, clock, seed, s0h, s0l, s1h, s1l, shouldDrain, canReturnText, shouldReportMemory, pendingResult, programPromise,
  hasRechecked, wasMemoryFull, allTools, scopes, installedNames, wrapperArguments, pendingCount, boxedBigIntMessage, moduleConfig, noticeBytes, noticeCount,
  outputBytes, outputItemCount, yieldCount, frames, resultLimits, resultWarnings, sidecar, pendingLargeTexts, pendingTextParts, largeBodies,
  referenceCount, resolvedBytes, replacement, languageNames, consoleBytes, consoleLines, isConsoleFull, isConsoleStable, wrapper,
  programText, isProgramAscii, lastValue, timerCount, setChangeListener, replaceParameters, errorsWritten, isSanitizing,
  shadowParameters, savedConfig, savedNames, savedModule, savedDirective, isSavedRequest,
];

// Every intrinsic that the guest runtime uses, captured before guest code exists. The other parts use no other one.
// No part uses template literals (they call String.prototype.concat) or state that the guest can reach.
const G = globalThis;
const Obj = G.Object, Arr = G.Array, Str = G.String, Err = G.Error, TypeErr = G.TypeError, RangeErr = G.RangeError;
const SyntaxErr = G.SyntaxError, EvalErr = G.EvalError, NativePromise = G.Promise, NativeDate = G.Date;
const NativeMap = G.Map, NativeWeakMap = G.WeakMap, NativeProxy = G.Proxy, Sym = G.Symbol;
const { apply, construct, defineProperty, deleteProperty, ownKeys } = G.Reflect;
const { getOwnPropertyDescriptor, getPrototypeOf, setPrototypeOf, preventExtensions } = G.Reflect;
const { freeze, create, is } = Obj;
const { stringify, parse } = G.JSON;
const { floor, imul } = G.Math;
const indirectEval = G.eval;
const parseInteger = G.parseInt;
const setStackReader = getOwnPropertyDescriptor(Err, "prepareStackTrace").set;

// A rest array has own elements, so a patched Array.prototype cannot see or change the call.
const uncurry = (method) => (self, ...args) => apply(method, self, args);
const slice = uncurry(Str.prototype.slice);
const indexOf = uncurry(Str.prototype.indexOf);
const lastIndexOf = uncurry(Str.prototype.lastIndexOf);
const charCodeAt = uncurry(Str.prototype.charCodeAt);
const join = uncurry(Arr.prototype.join);
const matchIn = uncurry(G.RegExp.prototype.exec);
const replaceIn = uncurry(Str.prototype.replace);
const mapGet = uncurry(NativeMap.prototype.get);
const mapSet = uncurry(NativeMap.prototype.set);
const mapClear = uncurry(NativeMap.prototype.clear);
const sort = uncurry(Arr.prototype.sort);
const mapSize = uncurry(getOwnPropertyDescriptor(NativeMap.prototype, "size").get);
const mapForEach = uncurry(NativeMap.prototype.forEach);
const weakGet = uncurry(NativeWeakMap.prototype.get);
const weakSet = uncurry(NativeWeakMap.prototype.set);
const functionText = uncurry(G.Function.prototype.toString);
const dateText = uncurry(NativeDate.prototype.toString);
const promiseThen = NativePromise.prototype.then;
const then = (promise, onValue, onError) => apply(promiseThen, promise, [onValue, onError]);
const isObject = (value) => (typeof value === "object" && value !== null) || typeof value === "function";

const constantDescriptor = (value) => ({ __proto__: null, value, writable: false, enumerable: false, configurable: false });
const defineConstant = (object, key, value) => defineProperty(object, key, constantDescriptor(value));
const defineHidden = (object, key, value) =>
  defineProperty(object, key, { value, writable: true, enumerable: false, configurable: true });
