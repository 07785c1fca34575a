// A result that is cut to what its surface allows, and what was cut: `result` {depth, properties} of a program's config.
// What needs no cutting takes one walk of the engine's; else a copy of ours is what becomes JSON.

const MAX_WARNINGS = 32, MAX_WARNING = 200, MAX_PLACE = 100, MAX_PLACE_KEY = 40;
const PLAIN_KEY = /^[A-Za-z_$][\w$]*$/;
const { isArray } = Arr;
const objectText = uncurry(Obj.prototype.toString);
const UNBOX = freeze({
  __proto__: null,
  "[object Number]": uncurry(G.Number.prototype.valueOf),
  "[object String]": uncurry(Str.prototype.valueOf),
  "[object Boolean]": uncurry(G.Boolean.prototype.valueOf),
  "[object BigInt]": bigIntIn,
});

// What holds something that JSON does not see, and what to return in its place.
const sizeOf = (get) => (value) => {
  try {
    return get(value);
  } catch {
    return 0; // it only inherits from one
  }
};
const setSize = uncurry(getOwnPropertyDescriptor(G.Set.prototype, "size").get);
const UNSEEN = freeze([
  freeze({ type: NativeMap, size: sizeOf(mapSize), what: "a Map, without its entries: return [...map] or Object.fromEntries(map)" }),
  freeze({ type: G.Set, size: sizeOf(setSize), what: "a Set, without its values: return [...set]" }),
  freeze({ type: NativePromise, size: () => 1, what: "a Promise, without its value: await it, or Promise.all of several" }),
  freeze({ type: G.Iterator, size: () => 1, what: "an iterator, without its items: return [...iterator]" }),
]);
const unseenIn = (value) => {
  const prototype = getPrototypeOf(value);
  if (prototype === Obj.prototype || prototype === Arr.prototype || prototype === null) return undefined;
  for (let i = 0; i < UNSEEN.length; i++) {
    const { type, size, what } = UNSEEN[i];
    if (value instanceof type && size(value) > 0) return what;
  }
  return undefined;
};

let resultRule; // undefined: a result is JSON as it is, or none
let resultWarnings = ""; // their JSON texts

// A replacer sees its holder: the containers that are open are those up to it.
const refusingReplacer = (rule) => {
  const open = [], { depth, properties } = rule;
  let level = 0, members = -1; // what is returned is no member of anything
  return function (key, value) {
    if (++members > properties) throw new RangeErr("too many members");
    if (typeof value !== "object" || value === null) return typeof value === "bigint" ? writeExactly(key, value) : value;
    while (level > 0 && open[level - 1] !== this) level--;
    if (level >= depth || unseenIn(value) !== undefined || (isRich && plainOf(value) !== value)) throw new RangeErr("too deep, or more than JSON sees");
    return (open[level++] = isError(value) ? errorFields(value) : value);
  };
};

const boundedJson = (value) => {
  if (value === undefined) return undefined;
  if (!isObject(value)) return toPlain(value);
  try {
    return toSentBy(refusingReplacer(resultRule), value);
  } catch (error) {
    if (saysNothing(error)) throw error; // no memory
  }
  // What a getter threw it throws again here, or its second answer counts.
  const cut = { __proto__: null, rule: resultRule, left: resultRule.properties, open: [], keys: [], warnings: 0, unsaid: 0 };
  const copy = copyOf(cut, { __proto__: null, "": value }, "");
  const text = toPlain(copy);
  if (cut.unsaid > 0) addWarning("and " + cut.unsaid + " more");
  return text;
};

const addWarning = (text) => {
  resultWarnings += (resultWarnings === "" ? "" : ",") + stringify(clip(text, MAX_WARNING - 1));
};
const placeOf = (keys, count) => {
  let place = "result";
  for (let i = 0; i < count; i++) {
    const key = keys[i];
    if (typeof key === "number") place += "[" + key + "]";
    else if (matchIn(PLAIN_KEY, key) !== null && key.length <= MAX_PLACE_KEY) place += "." + key;
    else place += "[" + stringify(clip(key, MAX_PLACE_KEY)) + "]";
  }
  if (place.length <= MAX_PLACE) return place;
  return slice(place, 0, MAX_PLACE / 2) + "\u2026" + slice(place, place.length - MAX_PLACE / 2);
};
const warn = (cut, what) => {
  if (cut.warnings >= MAX_WARNINGS - 1) cut.unsaid++;
  else {
    cut.warnings++;
    addWarning(placeOf(cut.keys, cut.open.length) + ": " + what);
  }
};

const unboxed = (value) => {
  try {
    const unbox = UNBOX[objectText(value)];
    return unbox === undefined ? undefined : unbox(value);
  } catch {
    return undefined; // it only calls itself one
  }
};
// What JSON.stringify would make of a member, as data of our own; undefined for what it leaves out.
const copyOf = (cut, holder, key) => {
  let value = holder[key];
  if (isObject(value) && largeOf(value) === undefined) {
    const toJSON = value.toJSON;
    if (typeof toJSON === "function") value = apply(toJSON, value, [Str(key)]);
  }
  if (typeof value === "function" || typeof value === "symbol") return undefined;
  if (isRich && isObject(value) && largeOf(value) === undefined) value = plainOf(value);
  if (!isObject(value) || largeOf(value) !== undefined) return value;
  const plain = unboxed(value);
  return plain === undefined ? copyOfContainer(cut, value) : plain;
};

const copyOfContainer = (cut, value) => {
  const level = cut.open.length;
  if (isAmong(cut.open, value)) {
    warn(cut, "a cycle, shown as [Circular]");
    return "[Circular]";
  }
  if (level >= cut.rule.depth) {
    warn(cut, "cut, deeper than " + cut.rule.depth + " levels");
    return "[cut: too deep]";
  }
  const unseen = unseenIn(value);
  if (unseen !== undefined) warn(cut, unseen);
  cut.open[level] = value;
  const copy = isArray(value) ? copyOfItems(cut, value, level) : copyOfMembers(cut, isError(value) ? errorFields(value) : value, level);
  cut.open.length = level;
  return copy;
};

const warnOfRest = (cut, level, rest, count, what) => {
  cut.open.length = level; // the place is the container's, not its last member's
  warn(cut, rest + " of " + count + " " + what + " left out, over " + cut.rule.properties + " members in all");
};
const copyOfItems = (cut, items, level) => {
  const copy = [], length = items.length; // a proxy may say anything
  const count = typeof length === "number" && length > 0 ? floor(length) : 0;
  for (let i = 0; i < count; i++) {
    if (cut.left === 0) {
      warnOfRest(cut, level, count - i, count, "items");
      break;
    }
    cut.left--;
    cut.keys[level] = i;
    copy[i] = copyOf(cut, items, i);
  }
  return copy;
};
const copyOfMembers = (cut, object, level) => {
  const copy = create(null), keys = enumerableKeys(object);
  for (let i = 0; i < keys.length; i++) {
    if (cut.left === 0) {
      warnOfRest(cut, level, keys.length - i, keys.length, "properties");
      break;
    }
    cut.left--;
    cut.keys[level] = keys[i];
    const value = copyOf(cut, object, keys[i]);
    if (value !== undefined) copy[keys[i]] = value;
  }
  return copy;
};
