// Tells that the engine has no memory left from what a program throws: the host names the limit by this alone.

// The engine alone makes errors of its own prototype: what a program calls InternalError is a class of ours, and nothing
// hands out the engine's prototype, for whoever catches such an error could else put it on one of its own.
const EnginePrototype = G.InternalError.prototype, MadePrototype = create(Err.prototype);
const MadeInternalError = function InternalError(...args) {
  return construct(Err, args, new.target === undefined ? MadeInternalError : new.target);
};
setPrototypeOf(MadeInternalError, Err);
defineProperty(MadeInternalError, "length", { __proto__: null, value: 1, writable: false, enumerable: false, configurable: true });
defineProperty(MadeInternalError, "prototype", constantly(MadePrototype));
method(MadePrototype, "constructor", MadeInternalError);
method(MadePrototype, "name", "InternalError");
method(MadePrototype, "message", "");
setPrototypeOf(EnginePrototype, MadePrototype);
method(EnginePrototype, "constructor", MadeInternalError);
method(G, "InternalError", MadeInternalError);

const shownPrototype = (prototype) => (prototype === EnginePrototype ? MadePrototype : prototype);
const protoOf = getOwnPropertyDescriptor(Obj.prototype, "__proto__");
const objectPrototypeOf = Obj.getPrototypeOf;
method(Obj, "getPrototypeOf", {
  getPrototypeOf(object) { return shownPrototype(objectPrototypeOf(object)); },
}.getPrototypeOf);
method(G.Reflect, "getPrototypeOf", {
  getPrototypeOf(target) { return shownPrototype(getPrototypeOf(target)); },
}.getPrototypeOf);
const shownProto = getOwnPropertyDescriptor({
  get ["__proto__"]() { return shownPrototype(apply(protoOf.get, this, [])); },
}, "__proto__").get;
defineProperty(Obj.prototype, "__proto__", { __proto__: null, get: shownProto, set: protoOf.set, enumerable: false, configurable: true });

// What the engine says of memory; nothing where there was none left to say it with. A text beyond its largest is one
// that no memory could hold.
const MEMORY_WORDS = freeze({
  __proto__: null, "": true, "out of memory": true, "out of memory in regexp execution": true, "string too long": true,
});
const isError = Err.isError;
// What the engine throws where it had no memory to set anything: of this type no program has a value otherwise.
const isNothing = (error) => typeof error === "unknown";
const saysNothing = (error) => error === null || isNothing(error);
const isEnginesOwn = (error) => {
  try {
    if (isNothing(error)) return true;
    // A proxy has the prototype of what it stands for.
    return isError(error) && getPrototypeOf(error) === EnginePrototype && MEMORY_WORDS[error.message] === true;
  } catch {
    return false;
  }
};

// The engine throws null when it has no memory left for an error. So may a program: null is the engine's only where the
// text has nothing that throws it or lets a promise be rejected with it, however that is written. Nobody can tell more.
const HANDS_NULL_ON = new G.RegExp(
  "\\b(?:throw|reject|then|Promise|Proxy|Reflect|Iterator|withResolvers|constructor|getPrototypeOf|__proto__|getOwn\\w+|" +
    "defineProperty|defineProperties|assign|fromEntries)\\b|\\\\[ux]|__(?:define|lookup)|[\\])]\\s*(?:\\?\\.\\s*)?\\(|" +
    "\\(\\s*(?:null|void)\\b|\\]\\s*=\\s*(?:async\\b|function\\b|[\\w$]+\\s*=>|\\()|" +
    "[{,;}]\\s*(?:async\\b\\s*|[gs]et\\b\\s*)?\\*?\\s*\\[" +
    "(?:[^\\]]{200}|[^\\]]*\\]\\s*(?:\\(|:\\s*(?:async\\b|function\\b|[\\w$]+\\s*=>|\\()))",
);
// What says one of these words and hands nothing on but what came: a call of then() or of Promise.all(), a promise that
// is given no way to reject it, and the throw of what is new, all of it, for behind it could stand a comma.
const SAFE_CALL = new G.RegExp(
  "\\.\\s*then\\s*\\(|\\bPromise\\s*\\.\\s*(?:all|allSettled|any|race|resolve)\\s*\\(|" +
    "\\bnew\\s+Promise\\s*\\(\\s*(?:[\\w$]+|\\(\\s*[\\w$]+\\s*\\))\\s*=>",
  "g",
);
const SAFE_THROW = new G.RegExp(
  "\\bthrow\\s+new\\s+[\\w$]+\\(" +
    "(?:[^()[\\]{\"'\\x60\\\\/]|\"[^\"\\\\\\n]*\"|'[^'\\\\\\n]*'|\\x60(?:[^\\x60\\\\$]|\\$(?!\\{)|\\$\\{[\\w$.]*\\})*\\x60)*" +
    "\\)\\s*[;}]",
  "g",
);
const THROW_LENGTH = 5;
const withoutSafe = (found) => (matchIn(HANDS_NULL_ON, slice(found, THROW_LENGTH)) === null ? ";" : found);
const mayThrowNull = (text) =>
  matchIn(HANDS_NULL_ON, replaceIn(replaceIn(text, SAFE_CALL, "."), SAFE_THROW, withoutSafe)) !== null;

const isOutOfMemory = (error) => isEnginesOwn(error) || (error === null && !mayThrowNull(programText));
