// Cuts a result to the size that its surface allows and warns of what was removed: `result` {depth, properties} of a config.
// A result that needs no cutting takes one walk in the engine; otherwise a copy of ours is encoded.

const MAX_WARNINGS = 32, MAX_WARNING = 200, MAX_WARNING_PATH = 100, MAX_WARNING_PATH_KEY = 40;
const PLAIN_KEY = /^[A-Za-z_$][\w$]*$/;
const { isArray } = Arr;
const objectText = uncurry(Obj.prototype.toString);
const UNBOXERS = freeze({
  __proto__: null,
  "[object Number]": uncurry(G.Number.prototype.valueOf),
  "[object String]": uncurry(Str.prototype.valueOf),
  "[object Boolean]": uncurry(G.Boolean.prototype.valueOf),
  "[object BigInt]": unboxBigInt,
});

// Types with content that JSON ignores, and what to return instead.
const makeSizeReader = (get) => (value) => {
  try {
    return get(value);
  } catch {
    return 0; // it only inherits from the type
  }
};
const setSize = uncurry(getOwnPropertyDescriptor(G.Set.prototype, "size").get);
const LOSSY_TYPES = freeze([
  freeze({ type: NativeMap, size: makeSizeReader(mapSize), what: "a Map, without its entries: return [...map] or Object.fromEntries(map)" }),
  freeze({ type: G.Set, size: makeSizeReader(setSize), what: "a Set, without its values: return [...set]" }),
  freeze({ type: NativePromise, size: () => 1, what: "a Promise, without its value: await it, or Promise.all of several" }),
  freeze({ type: G.Iterator, size: () => 1, what: "an iterator, without its items: return [...iterator]" }),
]);
const describeLostContent = (value) => {
  const prototype = getPrototypeOf(value);
  if (prototype === Obj.prototype || prototype === Arr.prototype || prototype === null) return undefined;
  for (let i = 0; i < LOSSY_TYPES.length; i++) {
    const { type, size, what } = LOSSY_TYPES[i];
    if (value instanceof type && size(value) > 0) return what;
  }
  return undefined;
};

let resultLimits; // undefined: a result of any depth and number of members is encoded
let resultWarnings = ""; // JSON texts of the warnings

// A replacer sees its holder: the open containers are those up to it.
const makeStrictReplacer = (treeLimits) => {
  const open = [], { depth, properties } = treeLimits;
  let level = 0, members = -1; // the result itself is not a member
  return function (key, value) {
    if (++members > properties) throw new RangeErr("too many members");
    if (typeof value !== "object" || value === null) return typeof value === "bigint" ? writeExactly(key, value) : value;
    while (level > 0 && open[level - 1] !== this) level--;
    if (level >= depth || describeLostContent(value) !== undefined || (hasRichValues && toPlainValue(value) !== value)) throw new RangeErr("too deep, or more than JSON sees");
    return (open[level++] = isError(value) ? collectErrorFields(value) : value);
  };
};

const encodeBoundedResult = (value) => {
  if (value === undefined) return undefined;
  if (!isObject(value)) return toUntaggedJson(value);
  try {
    return toHostJsonWith(makeStrictReplacer(resultLimits), value);
  } catch (error) {
    if (isNullOrUnset(error)) throw error; // no memory
  }
  // An exception of a getter is thrown again here; otherwise its second value counts.
  const cut = { __proto__: null, treeLimits: resultLimits, left: resultLimits.properties, open: [], keys: [], warnings: 0, unsaid: 0 };
  const copy = copyValue(cut, { __proto__: null, "": value }, "");
  const text = toUntaggedJson(copy);
  if (cut.unsaid > 0) addWarning("and " + cut.unsaid + " more");
  return text;
};

const addWarning = (text) => {
  resultWarnings += (resultWarnings === "" ? "" : ",") + stringify(clip(text, MAX_WARNING - 1));
};
const formatPath = (keys, count) => {
  let place = "result";
  for (let i = 0; i < count; i++) {
    const key = keys[i];
    if (typeof key === "number") place += "[" + key + "]";
    else if (matchIn(PLAIN_KEY, key) !== null && key.length <= MAX_WARNING_PATH_KEY) place += "." + key;
    else place += "[" + stringify(clip(key, MAX_WARNING_PATH_KEY)) + "]";
  }
  if (place.length <= MAX_WARNING_PATH) return place;
  return slice(place, 0, MAX_WARNING_PATH / 2) + "\u2026" + slice(place, place.length - MAX_WARNING_PATH / 2);
};
const warnAtPath = (cut, what) => {
  if (cut.warnings >= MAX_WARNINGS - 1) cut.unsaid++;
  else {
    cut.warnings++;
    addWarning(formatPath(cut.keys, cut.open.length) + ": " + what);
  }
};

const unboxPrimitive = (value) => {
  try {
    const unbox = UNBOXERS[objectText(value)];
    return unbox === undefined ? undefined : unbox(value);
  } catch {
    return undefined; // its Symbol.toStringTag is misleading
  }
};
// A member as JSON.stringify would encode it, as data of our own; undefined for what it leaves out.
const copyValue = (cut, holder, key) => {
  let value = holder[key];
  if (isObject(value) && getLargeString(value) === undefined) {
    const toJSON = value.toJSON;
    if (typeof toJSON === "function") value = apply(toJSON, value, [Str(key)]);
  }
  if (typeof value === "function" || typeof value === "symbol") return undefined;
  if (hasRichValues && isObject(value) && getLargeString(value) === undefined) value = toPlainValue(value);
  if (!isObject(value) || getLargeString(value) !== undefined) return value;
  const plain = unboxPrimitive(value);
  return plain === undefined ? copyContainer(cut, value) : plain;
};

const copyContainer = (cut, value) => {
  const level = cut.open.length;
  if (isInArray(cut.open, value)) {
    warnAtPath(cut, "a cycle, shown as [Circular]");
    return "[Circular]";
  }
  if (level >= cut.treeLimits.depth) {
    warnAtPath(cut, "cut, deeper than " + cut.treeLimits.depth + " levels");
    return "[cut: too deep]";
  }
  const lostContent = describeLostContent(value);
  if (lostContent !== undefined) warnAtPath(cut, lostContent);
  cut.open[level] = value;
  const copy = isArray(value) ? copyItems(cut, value, level) : copyMembers(cut, isError(value) ? collectErrorFields(value) : value, level);
  cut.open.length = level;
  return copy;
};

const warnLeftOut = (cut, level, rest, count, what) => {
  cut.open.length = level; // the path is the container's, not its last member's
  warnAtPath(cut, rest + " of " + count + " " + what + " left out, over " + cut.treeLimits.properties + " members in all");
};
const copyItems = (cut, items, level) => {
  const copy = [], length = items.length; // a proxy may return any length
  const count = typeof length === "number" && length > 0 ? floor(length) : 0;
  for (let i = 0; i < count; i++) {
    if (cut.left === 0) {
      warnLeftOut(cut, level, count - i, count, "items");
      break;
    }
    cut.left--;
    cut.keys[level] = i;
    copy[i] = copyValue(cut, items, i);
  }
  return copy;
};
const copyMembers = (cut, object, level) => {
  const copy = create(null), keys = enumerableKeys(object);
  for (let i = 0; i < keys.length; i++) {
    if (cut.left === 0) {
      warnLeftOut(cut, level, keys.length - i, keys.length, "properties");
      break;
    }
    cut.left--;
    cut.keys[level] = keys[i];
    const value = copyValue(cut, object, keys[i]);
    if (value !== undefined) copy[keys[i]] = value;
  }
  return copy;
};
