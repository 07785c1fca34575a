// The class URLSearchParams: an ordered list of name and value pairs.

const parseForm = (text) => {
  const parts = splitText(text, "&"), pairs = [];
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i];
    if (part === "") continue;
    const equals = indexOf(part, "=");
    const name = equals < 0 ? part : slice(part, 0, equals), value = equals < 0 ? "" : slice(part, equals + 1);
    pairs[pairs.length] = [decodeFormText(name), decodeFormText(value)];
  }
  return pairs;
};
const decodeFormText = (text) => percentDecode(replaceLiteral(text, "+", " "));
const encodeFormText = (text) => replaceLiteral(percentEncode(text, FORM_SET), "%20", "+");
const replaceLiteral = (text, from, to) => {
  let at = indexOf(text, from);
  if (at < 0) return text;
  let replaced = "", start = 0;
  for (; at >= 0; at = indexOf(text, from, start)) {
    replaced += slice(text, start, at) + to;
    start = at + from.length;
  }
  return replaced + slice(text, start);
};
const serializeForm = (pairs) => {
  let text = "";
  for (let i = 0; i < pairs.length; i++)
    text += (i === 0 ? "" : "&") + encodeFormText(pairs[i][0]) + "=" + encodeFormText(pairs[i][1]);
  return text;
};

// The engine's sort is stable, as the standard requires.
const sortPairs = uncurry(Arr.prototype.sort);
const compareNames = (one, other) => (one[0] < other[0] ? -1 : one[0] > other[0] ? 1 : 0);

const readInitPairs = (init) => {
  if (init === undefined || init === null) return [];
  if (!isObject(init)) return parseForm(stripLeadingUnit(toUsvString(init), QUESTION));
  if (init[Sym.iterator] !== undefined && init[Sym.iterator] !== null) {
    const pairs = [];
    for (const item of init) {
      if (!isObject(item)) throw new TypeErr("URLSearchParams: each item must be a pair of name and value");
      const pair = [];
      for (const text of item) pair[pair.length] = toUsvString(text);
      if (pair.length !== 2) throw new TypeErr("URLSearchParams: each item must be a pair of name and value");
      pairs[pairs.length] = pair;
    }
    return pairs;
  }
  const members = new NativeMap(), keys = ownKeys(init);
  for (let i = 0; i < keys.length; i++) {
    const descriptor = getOwnPropertyDescriptor(init, keys[i]);
    if (descriptor !== undefined && descriptor.enumerable) mapSet(members, toUsvString(keys[i]), toUsvString(init[keys[i]]));
  }
  const pairs = [];
  mapForEach(members, (value, name) => { pairs[pairs.length] = [name, value]; });
  return pairs;
};

let setChangeListener, replaceParameters; // used only by URL

class URLSearchParams {
  #pairs;
  #tell; // gives the owning URL its new query

  static {
    setChangeListener = (parameters, tell) => { parameters.#tell = tell; };
    replaceParameters = (parameters, text) => { parameters.#pairs = parseForm(text); };
  }
  constructor(init = undefined) { this.#pairs = readInitPairs(init); }
  #notifyChange() {
    if (this.#tell !== undefined) this.#tell(serializeForm(this.#pairs));
  }
  #keep(isKept) {
    const kept = [], pairs = this.#pairs;
    for (let i = 0; i < pairs.length; i++) if (isKept(pairs[i])) kept[kept.length] = pairs[i];
    this.#pairs = kept;
  }
  get size() { return this.#pairs.length; }
  append(name, value) {
    const pair = [toUsvString(name), toUsvString(value)];
    this.#pairs[this.#pairs.length] = pair;
    this.#notifyChange();
  }
  delete(name, value = undefined) {
    const wanted = toUsvString(name), text = value === undefined ? undefined : toUsvString(value);
    this.#keep((pair) => pair[0] !== wanted || (text !== undefined && pair[1] !== text));
    this.#notifyChange();
  }
  get(name) {
    const wanted = toUsvString(name), pairs = this.#pairs;
    for (let i = 0; i < pairs.length; i++) if (pairs[i][0] === wanted) return pairs[i][1];
    return null;
  }
  getAll(name) {
    const wanted = toUsvString(name), pairs = this.#pairs, values = [];
    for (let i = 0; i < pairs.length; i++) if (pairs[i][0] === wanted) values[values.length] = pairs[i][1];
    return values;
  }
  has(name, value = undefined) {
    const wanted = toUsvString(name), text = value === undefined ? undefined : toUsvString(value), pairs = this.#pairs;
    for (let i = 0; i < pairs.length; i++)
      if (pairs[i][0] === wanted && (text === undefined || pairs[i][1] === text)) return true;
    return false;
  }
  set(name, value) {
    const wanted = toUsvString(name), text = toUsvString(value);
    let isSet = false;
    this.#keep((pair) => {
      if (pair[0] !== wanted) return true;
      const isFirst = !isSet;
      if (isFirst) pair[1] = text;
      isSet = true;
      return isFirst;
    });
    if (!isSet) this.#pairs[this.#pairs.length] = [wanted, text];
    this.#notifyChange();
  }
  sort() {
    sortPairs(this.#pairs, compareNames);
    this.#notifyChange();
  }
  forEach(callback, self = undefined) {
    if (typeof callback !== "function") throw new TypeErr("URLSearchParams.forEach needs a function");
    for (let i = 0; i < this.#pairs.length; i++) apply(callback, self, [this.#pairs[i][1], this.#pairs[i][0], this]);
  }
  *entries() { for (let i = 0; i < this.#pairs.length; i++) yield [this.#pairs[i][0], this.#pairs[i][1]]; }
  *keys() { for (let i = 0; i < this.#pairs.length; i++) yield this.#pairs[i][0]; }
  *values() { for (let i = 0; i < this.#pairs.length; i++) yield this.#pairs[i][1]; }
  toString() { return serializeForm(this.#pairs); }
}

// As Web IDL defines classes: members are enumerable and the class name is a defineConstant toStringTag.
const applyWebIdlShape = (Class, tag) => {
  for (const object of [Class.prototype, Class]) {
    const keys = ownKeys(object);
    for (let i = 0; i < keys.length; i++) {
      const descriptor = getOwnPropertyDescriptor(object, keys[i]);
      if (keys[i] === "constructor" || (object === Class && keys[i] !== "parse" && keys[i] !== "canParse")) continue;
      defineProperty(object, keys[i], { ...descriptor, enumerable: true });
    }
  }
  defineConstant(Class.prototype, Sym.toStringTag, tag);
};
defineHidden(URLSearchParams.prototype, Sym.iterator, URLSearchParams.prototype.entries);
applyWebIdlShape(URL, "URL");
applyWebIdlShape(URLSearchParams, "URLSearchParams");
applyWebIdlShape(TextEncoder, "TextEncoder");
applyWebIdlShape(TextDecoder, "TextDecoder");
