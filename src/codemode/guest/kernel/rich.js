// Dates, bytes and sets as tagged JSON, where the host says so (`values` "rich"): {"$rich": [kind, value]}. An object of
// data that looks like that gets one more "$" into its key, here and on the host, so no data is taken for a tag.

let isRich = false;
const RICH = "$rich", TAG_KEY = /^\$+rich$/;
const NativeSet = G.Set, NativeBytes = G.Uint8Array, NativeBuffer = G.ArrayBuffer;
const timeOf = uncurry(NativeDate.prototype.getTime), isoOf = uncurry(NativeDate.prototype.toISOString);
const base64Of = uncurry(NativeBytes.prototype.toBase64), bytesOf = NativeBytes.fromBase64;
const addTo = uncurry(NativeSet.prototype.add), eachOf = uncurry(NativeSet.prototype.forEach);
const keysOf = Obj.keys;
const FIRST_TIME = -62135596800000, LAST_TIME = 253402300799999; // the years 1 to 9999, which the host knows

const takeRich = (values) => {
  isRich = values === "rich";
};
const tagged = (kind, value) => {
  const tag = create(null);
  tag[RICH] = [kind, value];
  return tag;
};
const taggedDate = (date) => {
  const time = timeOf(date);
  if (time !== time) throw new TypeErr("an invalid Date is no value");
  if (time < FIRST_TIME || time > LAST_TIME) throw new TypeErr("a Date outside of the years 1 to 9999 is no value");
  return tagged("Date", isoOf(date));
};
const itemsOf = (set) => {
  const items = [];
  eachOf(set, (one) => { items[items.length] = one; });
  return items;
};
const objectOfMap = (map) => {
  const object = create(null);
  mapForEach(map, (value, key) => {
    if (typeof key !== "string") throw new TypeErr("a Map is no value unless all its keys are strings: write [...map]");
    object[key] = value;
  });
  return object;
};
// What stands for a value; the value itself where JSON can say it.
const standingFor = (value) => {
  if (value instanceof NativeDate) return taggedDate(value);
  if (value instanceof NativeBytes) return tagged("Uint8Array", base64Of(value));
  if (value instanceof NativeBuffer) return tagged("Uint8Array", base64Of(new NativeBytes(value)));
  if (value instanceof NativeSet) return tagged("Set", itemsOf(value));
  if (value instanceof NativeMap) return escaped(objectOfMap(value));
  return isArray(value) ? value : escaped(value);
};
const escaped = (value) => {
  const keys = keysOf(value);
  if (keys.length !== 1 || matchIn(TAG_KEY, keys[0]) === null) return value;
  const object = create(null);
  object["$" + keys[0]] = value[keys[0]];
  return object;
};
// Before a writer sees a Date its toJSON has made text of it, or null of one that is invalid: its holder still has it.
const writeRich = (write) =>
  function (key, value) {
    let given = value;
    if (typeof value === "string" || value === null) {
      const held = this[key];
      if (isObject(held) && held instanceof NativeDate) given = held;
    }
    if (typeof given === "object" && given !== null && largeOf(given) === undefined && placeOfContent(given) === undefined)
      given = standingFor(given);
    return apply(write, this, [key, given]);
  };
const writtenRich = (makeStand, wrap, value) => {
  const write = (base) => wrap(sidecar === undefined ? base : writeStanding(base));
  const make = (base) => (sidecar === undefined ? stringify(value, write(base)) : withReferences(makeStand, value, write(base)));
  try {
    return make(writeExactly);
  } catch (error) {
    if (!isOfBoxed(error)) throw error;
    return make(writeBoxed);
  }
};
const withPlaces = (write) => writeRich(hasContents ? writeContents(write) : write);
const richJson = (value) => writtenRich(asPlace, withPlaces, value);

// What is only looked at is JSON without tags: sets and maps as arrays, bytes as base64.
const entriesOf = (map) => {
  const entries = [];
  mapForEach(map, (value, key) => { entries[entries.length] = [key, value]; });
  return entries;
};
const plainOf = (value) => {
  if (value instanceof NativeSet) return itemsOf(value);
  if (value instanceof NativeBytes) return base64Of(value);
  return value instanceof NativeMap ? entriesOf(value) : value;
};
const writePlain = (write) =>
  function (key, value) {
    return apply(write, this, [key, typeof value === "object" && largeOf(value) === undefined ? plainOf(value) : value]);
  };
const richShown = (value) => writtenRich(asBeginning, writePlain, value);

// Makes of what the host has written what it stands for, in place: nobody else has seen it yet.
const revived = (value) => {
  if (!isObject(value) || largeOf(value) !== undefined || placeOfContent(value) !== undefined) return value;
  const keys = ownKeys(value);
  if (!isArray(value) && keys.length === 1 && matchIn(TAG_KEY, keys[0]) !== null) return untagged(keys[0], value[keys[0]]);
  for (let i = 0; i < keys.length; i++) if (keys[i] !== "length" || !isArray(value)) value[keys[i]] = revived(value[keys[i]]);
  return value;
};
const untagged = (key, inner) => {
  if (key !== RICH) return { [slice(key, 1)]: revived(inner) };
  const kind = isArray(inner) ? inner[0] : undefined, held = isArray(inner) ? inner[1] : undefined;
  const text = largeOf(held) === undefined ? held : largeText(largeOf(held));
  if (kind === "Date" && typeof text === "string") return new NativeDate(text);
  if (kind === "Uint8Array" && typeof text === "string") return bytesOf(text);
  if (kind !== "Set" || !isArray(held)) return { [RICH]: revived(inner) }; // a person's word for an outcome may be anything
  const set = new NativeSet();
  for (let i = 0; i < held.length; i++) addTo(set, revived(held[i]));
  return set;
};
