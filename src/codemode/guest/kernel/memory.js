// Recognises memory exhaustion in what a program throws: the host has nothing else by which to name that limit.

// Only the engine creates errors of its own prototype: the guest's InternalError is a class of ours, and nothing exposes
// the engine's prototype, since a program that catches such an error could otherwise put it on an error of its own.
const EngineErrorPrototype = G.InternalError.prototype, GuestErrorPrototype = create(Err.prototype);
const GuestInternalError = function InternalError(...args) {
  return construct(Err, args, new.target === undefined ? GuestInternalError : new.target);
};
setPrototypeOf(GuestInternalError, Err);
defineProperty(GuestInternalError, "length", { __proto__: null, value: 1, writable: false, enumerable: false, configurable: true });
defineProperty(GuestInternalError, "prototype", constantDescriptor(GuestErrorPrototype));
defineHidden(GuestErrorPrototype, "constructor", GuestInternalError);
defineHidden(GuestErrorPrototype, "name", "InternalError");
defineHidden(GuestErrorPrototype, "message", "");
setPrototypeOf(EngineErrorPrototype, GuestErrorPrototype);
defineHidden(EngineErrorPrototype, "constructor", GuestInternalError);
defineHidden(G, "InternalError", GuestInternalError);

const hideEnginePrototype = (prototype) => (prototype === EngineErrorPrototype ? GuestErrorPrototype : prototype);
const protoAccessor = getOwnPropertyDescriptor(Obj.prototype, "__proto__");
const nativeGetPrototypeOf = Obj.getPrototypeOf;
defineHidden(Obj, "getPrototypeOf", {
  getPrototypeOf(object) { return hideEnginePrototype(nativeGetPrototypeOf(object)); },
}.getPrototypeOf);
defineHidden(G.Reflect, "getPrototypeOf", {
  getPrototypeOf(target) { return hideEnginePrototype(getPrototypeOf(target)); },
}.getPrototypeOf);
const guestProtoGetter = getOwnPropertyDescriptor({
  get ["__proto__"]() { return hideEnginePrototype(apply(protoAccessor.get, this, [])); },
}, "__proto__").get;
defineProperty(Obj.prototype, "__proto__", { __proto__: null, get: guestProtoGetter, set: protoAccessor.set, enumerable: false, configurable: true });

// The engine's messages about memory; empty where none was left for a message. "string too long" is a text that no
// memory could hold.
const MEMORY_MESSAGES = freeze({
  __proto__: null, "": true, "out of memory": true, "out of memory in regexp execution": true, "string too long": true,
});
const isError = Err.isError;
// What the engine throws when it had no memory to set an exception: no other value has this type.
const isUnsetException = (error) => typeof error === "unknown";
const isNullOrUnset = (error) => error === null || isUnsetException(error);
const isEngineMemoryError = (error) => {
  try {
    if (isUnsetException(error)) return true;
    // A proxy has the prototype of its target.
    return isError(error) && getPrototypeOf(error) === EngineErrorPrototype && MEMORY_MESSAGES[error.message] === true;
  } catch {
    return false;
  }
};

// The engine throws null when it has no memory left for an error. A program can do so too: null counts as the engine's
// only if the program text has nothing that could throw null or reject with it in any spelling. There is no better test.
const NULL_THROW_PATTERN = new G.RegExp(
  "\\b(?:throw|reject|then|Promise|Proxy|Reflect|Iterator|withResolvers|constructor|getPrototypeOf|__proto__|getOwn\\w+|" +
    "defineProperty|defineProperties|assign|fromEntries)\\b|\\\\[ux]|__(?:define|lookup)|[\\])]\\s*(?:\\?\\.\\s*)?\\(|" +
    "\\(\\s*(?:null|void)\\b|\\]\\s*=\\s*(?:async\\b|function\\b|[\\w$]+\\s*=>|\\()|" +
    "[{,;}]\\s*(?:async\\b\\s*|[gs]et\\b\\s*)?\\*?\\s*\\[" +
    "(?:[^\\]]{200}|[^\\]]*\\]\\s*(?:\\(|:\\s*(?:async\\b|function\\b|[\\w$]+\\s*=>|\\()))",
);
// These use one of those words but pass on only what they got: a call of then() or of Promise.all(), a promise whose
// executor takes no reject, and a `throw new` with the complete expression, because a comma could follow it.
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
const removeSafeThrow = (found) => (matchIn(NULL_THROW_PATTERN, slice(found, THROW_LENGTH)) === null ? ";" : found);
const canThrowNull = (text) =>
  matchIn(NULL_THROW_PATTERN, replaceIn(replaceIn(text, SAFE_CALL, "."), SAFE_THROW, removeSafeThrow)) !== null;

const isOutOfMemory = (error) => isEngineMemoryError(error) || (error === null && !canThrowNull(programText));
