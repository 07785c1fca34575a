// Dates, bytes and sets as tagged JSON, {"$rich": [kind, value]}, if the host sets `values` to "rich". A data object
// that looks like a tag gets one more "$" in its key, here and on the host, so that it is not read as a tag.

let hasRichValues = false;
const RICH_TAG = "$rich", TAG_KEY_PATTERN = /^\$+rich$/;
const NativeSet = G.Set, NativeUint8Array = G.Uint8Array, NativeBuffer = G.ArrayBuffer;
const dateGetTime = uncurry(NativeDate.prototype.getTime), dateToIso = uncurry(NativeDate.prototype.toISOString);
const encodeBase64 = uncurry(NativeUint8Array.prototype.toBase64), decodeBase64 = NativeUint8Array.fromBase64;
const setAdd = uncurry(NativeSet.prototype.add), setForEach = uncurry(NativeSet.prototype.forEach);
const objectKeys = Obj.keys;
const MIN_DATE_MS = -62135596800000, MAX_DATE_MS = 253402300799999; // the years 1 to 9999, the range of Python's datetime

const configureRich = (values) => {
  hasRichValues = values === "rich";
};
const makeTag = (kind, value) => {
  const tag = create(null);
  tag[RICH_TAG] = [kind, value];
  return tag;
};
const tagDate = (date) => {
  const time = dateGetTime(date);
  if (time !== time) throw new TypeErr("an invalid Date is no value");
  if (time < MIN_DATE_MS || time > MAX_DATE_MS) throw new TypeErr("a Date outside of the years 1 to 9999 is no value");
  return makeTag("Date", dateToIso(date));
};
const setToArray = (set) => {
  const items = [];
  setForEach(set, (one) => { items[items.length] = one; });
  return items;
};
const mapToObject = (map) => {
  const object = create(null);
  mapForEach(map, (value, key) => {
    if (typeof key !== "string") throw new TypeErr("a Map is no value unless all its keys are strings: write [...map]");
    object[key] = value;
  });
  return object;
};
// A value's encoding; the value itself if it is plain JSON.
const encodeRichValue = (value) => {
  if (value instanceof NativeDate) return tagDate(value);
  if (value instanceof NativeUint8Array) return makeTag("Uint8Array", encodeBase64(value));
  if (value instanceof NativeBuffer) return makeTag("Uint8Array", encodeBase64(new NativeUint8Array(value)));
  if (value instanceof NativeSet) return makeTag("Set", setToArray(value));
  if (value instanceof NativeMap) return escapeTagKey(mapToObject(value));
  return isArray(value) ? value : escapeTagKey(value);
};
const escapeTagKey = (value) => {
  const keys = objectKeys(value);
  if (keys.length !== 1 || matchIn(TAG_KEY_PATTERN, keys[0]) === null) return value;
  const object = create(null);
  object["$" + keys[0]] = value[keys[0]];
  return object;
};
// A replacer gets a Date's toJSON() text, or null for an invalid one; the Date is still in `this`.
const makeRichWriter = (write) =>
  function (key, value) {
    let given = value;
    if (typeof value === "string" || value === null) {
      const held = this[key];
      if (isObject(held) && held instanceof NativeDate) given = held;
    }
    if (typeof given === "object" && given !== null && getLargeString(given) === undefined && getContentPlaceholder(given) === undefined)
      given = encodeRichValue(given);
    return apply(write, this, [key, given]);
  };
const stringifyRich = (replaceLarge, wrap, value) => {
  const write = (base) => wrap(sidecar === undefined ? base : makeReferenceWriter(base));
  const make = (base) => (sidecar === undefined ? stringify(value, write(base)) : stringifyReferences(replaceLarge, value, write(base)));
  try {
    return make(writeExactly);
  } catch (error) {
    if (!isBoxedBigIntError(error)) throw error;
    return make(writeBoxedBigInt);
  }
};
const makeRichHostWriter = (write) => makeRichWriter(hasContents ? makeContentWriter(write) : write);
const writeRichJson = (value) => stringifyRich(toPlaceholder, makeRichHostWriter, value);

// For display, JSON without tags: sets and maps as arrays, bytes as base64.
const mapToEntries = (map) => {
  const entries = [];
  mapForEach(map, (value, key) => { entries[entries.length] = [key, value]; });
  return entries;
};
const toPlainValue = (value) => {
  if (value instanceof NativeSet) return setToArray(value);
  if (value instanceof NativeUint8Array) return encodeBase64(value);
  return value instanceof NativeMap ? mapToEntries(value) : value;
};
const makePlainWriter = (write) =>
  function (key, value) {
    return apply(write, this, [key, typeof value === "object" && getLargeString(value) === undefined ? toPlainValue(value) : value]);
  };
const writeRichDisplayJson = (value) => stringifyRich(toPreview, makePlainWriter, value);

// Decodes tags in parsed host JSON, in place: no guest code has seen it yet.
const decodeRichValue = (value) => {
  if (!isObject(value) || getLargeString(value) !== undefined || getContentPlaceholder(value) !== undefined) return value;
  const keys = ownKeys(value);
  if (!isArray(value) && keys.length === 1 && matchIn(TAG_KEY_PATTERN, keys[0]) !== null) return decodeTag(keys[0], value[keys[0]]);
  for (let i = 0; i < keys.length; i++) if (keys[i] !== "length" || !isArray(value)) value[keys[i]] = decodeRichValue(value[keys[i]]);
  return value;
};
const decodeTag = (key, inner) => {
  if (key !== RICH_TAG) return { [slice(key, 1)]: decodeRichValue(inner) };
  const kind = isArray(inner) ? inner[0] : undefined, held = isArray(inner) ? inner[1] : undefined;
  const text = getLargeString(held) === undefined ? held : readLargeText(getLargeString(held));
  if (kind === "Date" && typeof text === "string") return new NativeDate(text);
  if (kind === "Uint8Array" && typeof text === "string") return decodeBase64(text);
  if (kind !== "Set" || !isArray(held)) return { [RICH_TAG]: decodeRichValue(inner) }; // an outcome entered by a person may be anything
  const set = new NativeSet();
  for (let i = 0; i < held.length; i++) setAdd(set, decodeRichValue(held[i]));
  return set;
};
