// A worker shares its memory with others until it writes, and each page that it writes to first has to be copied. The
// engine makes the cell of a variable when the first function that names it is made: so this one, which nobody calls, is
// the first to name those that programs write, and their cells lie together.
const CELLS_TOGETHER = () => [
  outbox, finished, nextId, inFlight, unanswered, bridgeRequests, catalogRequests, questions, limits, given, contentTag,
  hasContents, shownContents, isRich, clock, seed, s0h, s0l, s1h, s1l, drains, saysInText, tellsOfMemory, returned, ownPromise,
  hasAsked, wasFull, allTools, scopes, installed, wrapperArguments, pendingCount, ofBoxed, moduleGiven, noticeBytes, notices,
  outputBytes, outputItems, yields, frames, resultRule, resultWarnings, sidecar, arrivedTexts, arrivedParts, bodies,
  referenceCount, resolvedBytes, stand, languageNames, consoleBytes, consoleLines, consoleFull, isStable, wrapper,
  programText, programIsAscii, lastValue, timersSet, ownedBy, retakeParameters, errorsWritten, isLean,
  shadowParameters, savedGiven, savedNames, savedExports, savedDirective, asksSaved,
];

// Every intrinsic that the kernel uses, captured before guest code exists. The other parts name nothing else.
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

const constantly = (value) => ({ __proto__: null, value, writable: false, enumerable: false, configurable: false });
const constant = (object, key, value) => defineProperty(object, key, constantly(value));
const method = (object, key, value) =>
  defineProperty(object, key, { value, writable: true, enumerable: false, configurable: true });
