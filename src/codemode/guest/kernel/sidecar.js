// Large strings in tool results, as references: frozen objects that behave like the string and are sent back to the host
// as a number instead of the text. The text arrives once and is parsed when the program first reads it.

let sidecar; // {resolved, composites} from the config; undefined if large strings cross as strings
let pendingLargeTexts = []; // received JSON texts (or their parts), or the numbers of earlier ones, for the next answer
let pendingTextParts = []; // parts of a text that is incomplete
let largeBodies = []; // by number; references to equal texts share a body
let referenceCount = 0, resolvedBytes = 0;
const largeStrings = new NativeWeakMap(); // a reference, and its target -> {number, bytes, body: {json, text}}
const stringPrototype = Str.prototype;

const getLargeString = (value) => (isObject(value) ? weakGet(largeStrings, value) : undefined);
const readLargeText = (large) => {
  const body = large.body;
  if (body.text === undefined) {
    if (typeof body.json !== "string") body.json = join(body.json, "");
    body.text = parse(body.json);
    body.json = undefined;
  }
  return body.text;
};

const resolve = (bytes) => {
  if (bytes > sidecar.resolved - resolvedBytes)
    throw new RangeErr("what this program has made ordinary strings of takes more than maxResolvedSize (" + sidecar.resolved +
      " bytes): pass references to large strings on as they are, or take less of them");
  resolvedBytes += bytes;
};
const resolveText = (reference) => {
  const large = requireLargeString(reference);
  resolve(large.bytes);
  return readLargeText(large);
};
const requireLargeString = (reference) => {
  const large = getLargeString(reference);
  if (large === undefined) throw new TypeErr("this is no reference to a large string");
  return large;
};

// One line of the current stack; line 0 is this function.
const readStackLine = (distance) => {
  const stack = new Err().stack;
  let start = 0;
  for (let i = 0; i < distance; i++) start = indexOf(stack, "\n", start) + 1;
  return slice(stack, start, indexOf(stack, "\n", start));
};

const CONVERSIONS = freeze({
  __proto__: null,
  // JSON.parse converts its argument like any other native; it is the only one that gets the text.
  [Sym.toPrimitive](_hint) {
    const large = requireLargeString(this);
    if (readStackLine(2) === "    at parse (native)") return readLargeText(large);
    if (sidecar.composites) return resolveText(this);
    throw new TypeErr("a large string from a tool is a reference, which is not joined, compared or converted by itself:" +
      " call its toString() first, or pass it on as it is");
  },
  toJSON() { return resolveText(this); },
});
freeze(CONVERSIONS[Sym.toPrimitive]);
freeze(CONVERSIONS.toJSON);

// A method that returns the whole text or more counts as resolving it.
const makeStringMethod = (key, native) => freeze({
  [key](...args) {
    const large = requireLargeString(this), text = readLargeText(large);
    const value = apply(native, text, args);
    if (typeof value === "string" && value.length >= text.length) resolve(value === text ? large.bytes : utf8Length(value));
    return value;
  },
}[key]);
const REFERENCE_METHODS = create(null);
for (const key of ownKeys(stringPrototype)) {
  const native = stringPrototype[key];
  if (typeof native === "function" && key !== "constructor") REFERENCE_METHODS[key] = makeStringMethod(key, native);
}
freeze(REFERENCE_METHODS);

const isIndex = (key) => typeof key === "string" && key !== "" && charCodeAt(key, 0) - 48 >>> 0 < 10;
const referenceTraps = freeze({
  __proto__: null,
  get(target, key) {
    if (key === "toJSON") return replacement !== undefined && isReadByWriteJson() ? undefined : CONVERSIONS.toJSON;
    if (key === Sym.toPrimitive) return CONVERSIONS[key];
    if (key === Sym.toStringTag) return "String";
    if (key === "length" || isIndex(key)) return readLargeText(weakGet(largeStrings, target))[key];
    const method = REFERENCE_METHODS[key];
    return method === undefined ? stringPrototype[key] : method;
  },
  has(target, key) {
    if (key === "length" || isIndex(key)) return readLargeText(weakGet(largeStrings, target))[key] !== undefined;
    return key in stringPrototype;
  },
});

// A reference is frozen, as strings are. It has no own properties: a proxy may not report more than its frozen target has.
const makeReference = (textOrNumber, bytes) => {
  const body = isIndex(textOrNumber) ? largeBodies[textOrNumber] : { __proto__: null, json: textOrNumber, text: undefined };
  largeBodies[referenceCount] = body;
  const target = freeze(create(stringPrototype)), reference = new NativeProxy(target, referenceTraps);
  const large = { __proto__: null, number: referenceCount, bytes, body };
  weakSet(largeStrings, target, large);
  weakSet(largeStrings, reference, large);
  referenceCount++;
  return reference;
};

// When memory is out, the engine passes an invalid value instead of the text; reading its length throws.
const holdText = (json) => {
  if (json.length > 0) pendingLargeTexts[pendingLargeTexts.length] = json;
  return "ok";
};
const holdPart = (part, isLast) => {
  if (part.length > 0) pendingTextParts[pendingTextParts.length] = part;
  if (isLast) {
    pendingLargeTexts[pendingLargeTexts.length] = pendingTextParts;
    pendingTextParts = [];
  }
  return "ok";
};

// The host replaces a large string by a number in a notation that no JSON writer uses: "0E" and the index.
const isPlaceholder = (source) => charCodeAt(source, 1) === 69 && charCodeAt(source, 0) === 48;
const parseAnswer = (text, read) => {
  if (pendingLargeTexts.length === 0) return mayHaveContents(text) ? parseWithContents(text, read) : parse(text, read);
  const references = [];
  const answer = parse(text, (key, value, context) => {
    if (value === 0 && isPlaceholder(context.source)) return references[parseInteger(slice(context.source, 2), 10)];
    if (key === "sizes" && references.length === 0)
      for (let i = 0; i < pendingLargeTexts.length; i++) references[i] = makeReference(pendingLargeTexts[i], value[i]);
    return read === undefined ? value : read(key, value, context);
  });
  pendingLargeTexts = [];
  return answer;
};

// --- outgoing: the placeholder of a reference is not a string, so no string can be mistaken for one ---

let replacement; // replaces a large string in the JSON that the guest runtime is writing; undefined otherwise
const toPlaceholder = (large) => rawJSON("0E" + large.number);
const toPreview = (large) => clip(readLargeText(large), MAX_MESSAGE_LENGTH);

// The wrapped replacer sees null in place of a reference.
const makeReferenceWriter = (write) =>
  function (key, value) {
    const large = getLargeString(value), written = apply(write, this, [key, large === undefined ? value : null]);
    return large === undefined ? written : replacement(large);
  };
const writeReferences = makeReferenceWriter(writeExactly), writeReferencesAndBoxed = makeReferenceWriter(writeBoxedBigInt);

// JSON.stringify reads toJSON first. Only writeJson must not see it, even if guest code runs meanwhile.
const WRITE_JSON_FRAME = "    at writeJson (<input>:";
const isReadByWriteJson = () => {
  const frame = readStackLine(4);
  return indexOf(frame, WRITE_JSON_FRAME) === 0 && parseInteger(slice(frame, WRITE_JSON_FRAME.length), 10) >= RUNTIME_FIRST_LINE;
};
const writeJson = (value, write) => stringify(value, write);
const stringifyReferences = (replaceLarge, value, write) => {
  const before = replacement;
  replacement = replaceLarge;
  try {
    return writeJson(value, write);
  } finally {
    replacement = before;
  }
};
const toJsonReplacing = (replaceLarge, value) => {
  if (sidecar === undefined) return toJson(value);
  try {
    return stringifyReferences(replaceLarge, value, writeReferences);
  } catch (error) {
    if (!isBoxedBigIntError(error)) throw error;
    return stringifyReferences(replaceLarge, value, writeReferencesAndBoxed);
  }
};

// For inputs and results, where the host restores the texts; and for display.
const writeUntaggedJson = (value) => (hasContents ? toJsonWithContents(value) : toJsonReplacing(toPlaceholder, value));
const writeHostJson = (value) => (hasRichValues ? writeRichJson(value) : writeUntaggedJson(value));
const writeDisplayJson = (value) => (hasRichValues ? writeRichDisplayJson(value) : toJsonReplacing(toPreview, value));
const toHostJson = (value) => writeWithErrorRetry(writeHostJson, value);
const toUntaggedJson = (value) => writeWithErrorRetry(writeUntaggedJson, value);
const toDisplayJson = (value) => writeWithErrorRetry(writeDisplayJson, value);
const toHostJsonWith = (write, value) =>
  sidecar === undefined ? stringify(value, write) : stringifyReferences(toPlaceholder, value, makeReferenceWriter(write));

const configureSidecar = (settings) => {
  sidecar = settings;
  pendingLargeTexts = [];
  pendingTextParts = [];
  largeBodies = [];
  referenceCount = resolvedBytes = 0;
  replacement = undefined;
};
