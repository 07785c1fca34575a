// Large strings of what tools gave, as references: frozen objects that act as the string, and that go back to the host
// as a number instead of their text. The text comes once; it is read out of its JSON when a program first looks at it.

let sidecar; // {resolved, composites} of the run; undefined without
let arrivedTexts = []; // JSON texts, or parts of them, that came ahead of the answer in which they stand, or numbers of those that are here
let arrivedParts = []; // of one that is still on its way
let bodies = []; // by number: what references to equal texts share
let referenceCount = 0, resolvedBytes = 0;
const largeStrings = new NativeWeakMap(); // a reference, and its target -> {number, bytes, body: {json, text}}
const stringPrototype = Str.prototype;

const largeOf = (value) => (isObject(value) ? weakGet(largeStrings, value) : undefined);
const largeText = (large) => {
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
const resolvedText = (reference) => {
  const large = referenced(reference);
  resolve(large.bytes);
  return largeText(large);
};
const referenced = (reference) => {
  const large = largeOf(reference);
  if (large === undefined) throw new TypeErr("this is no reference to a large string");
  return large;
};

// Frames of the stack by their distance: 0 is this function's own.
const frameAt = (distance) => {
  const stack = new Err().stack;
  let start = 0;
  for (let i = 0; i < distance; i++) start = indexOf(stack, "\n", start) + 1;
  return slice(stack, start, indexOf(stack, "\n", start));
};

const CONVERSIONS = freeze({
  __proto__: null,
  // JSON.parse asks for a string as everything else does; it is the one that may have it.
  [Sym.toPrimitive](_hint) {
    const large = referenced(this);
    if (frameAt(2) === "    at parse (native)") return largeText(large);
    if (sidecar.composites) return resolvedText(this);
    throw new TypeErr("a large string from a tool is a reference, which is not joined, compared or converted by itself:" +
      " call its toString() first, or pass it on as it is");
  },
  toJSON() { return resolvedText(this); },
});
freeze(CONVERSIONS[Sym.toPrimitive]);
freeze(CONVERSIONS.toJSON);

// What gives the whole text or more has made an ordinary string of it.
const asMethod = (key, native) => freeze({
  [key](...args) {
    const large = referenced(this), text = largeText(large);
    const value = apply(native, text, args);
    if (typeof value === "string" && value.length >= text.length) resolve(value === text ? large.bytes : utf8Length(value));
    return value;
  },
}[key]);
const METHODS = create(null);
for (const key of ownKeys(stringPrototype)) {
  const native = stringPrototype[key];
  if (typeof native === "function" && key !== "constructor") METHODS[key] = asMethod(key, native);
}
freeze(METHODS);

const isIndex = (key) => typeof key === "string" && key !== "" && charCodeAt(key, 0) - 48 >>> 0 < 10;
const referenceTraps = freeze({
  __proto__: null,
  get(target, key) {
    if (key === "toJSON") return stand !== undefined && isReadByKernel() ? undefined : CONVERSIONS.toJSON;
    if (key === Sym.toPrimitive) return CONVERSIONS[key];
    if (key === Sym.toStringTag) return "String";
    if (key === "length" || isIndex(key)) return largeText(weakGet(largeStrings, target))[key];
    const method = METHODS[key];
    return method === undefined ? stringPrototype[key] : method;
  },
  has(target, key) {
    if (key === "length" || isIndex(key)) return largeText(weakGet(largeStrings, target))[key] !== undefined;
    return key in stringPrototype;
  },
});

// Strings are frozen, and so is this: it has no properties of its own, for a proxy may have no more than its target.
const makeReference = (arrived, bytes) => {
  const body = isIndex(arrived) ? bodies[arrived] : { __proto__: null, json: arrived, text: undefined };
  bodies[referenceCount] = body;
  const target = freeze(create(stringPrototype)), reference = new NativeProxy(target, referenceTraps);
  const large = { __proto__: null, number: referenceCount, bytes, body };
  weakSet(largeStrings, target, large);
  weakSet(largeStrings, reference, large);
  referenceCount++;
  return reference;
};

// The engine hands over what it had no memory for as no value at all: to look at its length throws that.
const holdText = (json) => {
  if (json.length > 0) arrivedTexts[arrivedTexts.length] = json;
  return "ok";
};
const holdPart = (part, isLast) => {
  if (part.length > 0) arrivedParts[arrivedParts.length] = part;
  if (isLast) {
    arrivedTexts[arrivedTexts.length] = arrivedParts;
    arrivedParts = [];
  }
  return "ok";
};

// Where a large string stood the host has written a number as nobody else writes one.
const isPlace = (source) => charCodeAt(source, 1) === 69 && charCodeAt(source, 0) === 48;
const readAnswer = (text, read) => {
  if (arrivedTexts.length === 0) return mayHaveContents(text) ? readContents(text, read) : parse(text, read);
  const references = [];
  const answer = parse(text, (key, value, context) => {
    if (value === 0 && isPlace(context.source)) return references[parseInteger(slice(context.source, 2), 10)];
    if (key === "sizes" && references.length === 0)
      for (let i = 0; i < arrivedTexts.length; i++) references[i] = makeReference(arrivedTexts[i], value[i]);
    return read === undefined ? value : read(key, value, context);
  });
  arrivedTexts = [];
  return answer;
};

// --- what leaves: what stands for a reference in it is no string, so that no string can be taken for one ---

let stand; // makes of a large string what stands for it in what the kernel itself writes now
const asPlace = (large) => rawJSON("0E" + large.number);
const asBeginning = (large) => clip(largeText(large), MAX_MESSAGE);

// The writer itself takes a reference for a scalar.
const writeStanding = (write) =>
  function (key, value) {
    const large = largeOf(value), written = apply(write, this, [key, large === undefined ? value : null]);
    return large === undefined ? written : stand(large);
  };
const writeReferences = writeStanding(writeExactly), writeReferencesAndBoxed = writeStanding(writeBoxed);

// JSON.stringify asks for toJSON first: it is hidden from this function alone, whatever the program does meanwhile.
const WRITER = "    at writeJson (<input>:";
const isReadByKernel = () => {
  const frame = frameAt(4);
  return indexOf(frame, WRITER) === 0 && parseInteger(slice(frame, WRITER.length), 10) >= KERNEL_LINE;
};
const writeJson = (value, write) => stringify(value, write);
const withReferences = (makeStand, value, write) => {
  const before = stand;
  stand = makeStand;
  try {
    return writeJson(value, write);
  } finally {
    stand = before;
  }
};
const toJsonWith = (makeStand, value) => {
  if (sidecar === undefined) return toJson(value);
  try {
    return withReferences(makeStand, value, writeReferences);
  } catch (error) {
    if (!isOfBoxed(error)) throw error;
    return withReferences(makeStand, value, writeReferencesAndBoxed);
  }
};

// For inputs and the result, in which the host puts the texts; and for what is only to be looked at.
const plainJson = (value) => (hasContents ? toJsonWithContents(value) : toJsonWith(asPlace, value));
const sentJson = (value) => (isRich ? richJson(value) : plainJson(value));
const shownJson = (value) => (isRich ? richShown(value) : toJsonWith(asBeginning, value));
const toSent = (value) => writeWithErrors(sentJson, value);
const toPlain = (value) => writeWithErrors(plainJson, value);
const toShown = (value) => writeWithErrors(shownJson, value);
const toSentBy = (write, value) =>
  sidecar === undefined ? stringify(value, write) : withReferences(asPlace, value, writeStanding(write));

const takeSidecar = (settings) => {
  sidecar = settings;
  arrivedTexts = [];
  arrivedParts = [];
  bodies = [];
  referenceCount = resolvedBytes = 0;
  stand = undefined;
};
