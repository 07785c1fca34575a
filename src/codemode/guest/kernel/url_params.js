// URLSearchParams: pairs of texts, in order.

const decodeForm = (text) => {
  const parts = splitAt(text, "&"), pairs = [];
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i];
    if (part === "") continue;
    const equals = indexOf(part, "=");
    const name = equals < 0 ? part : slice(part, 0, equals), value = equals < 0 ? "" : slice(part, equals + 1);
    pairs[pairs.length] = [formDecoded(name), formDecoded(value)];
  }
  return pairs;
};
const formDecoded = (text) => percentDecoded(replaceUnits(text, "+", " "));
const formEncoded = (text) => replaceUnits(percentEncode(text, FORM_SET), "%20", "+");
const replaceUnits = (text, from, to) => {
  let at = indexOf(text, from);
  if (at < 0) return text;
  let replaced = "", start = 0;
  for (; at >= 0; at = indexOf(text, from, start)) {
    replaced += slice(text, start, at) + to;
    start = at + from.length;
  }
  return replaced + slice(text, start);
};
const formText = (pairs) => {
  let text = "";
  for (let i = 0; i < pairs.length; i++)
    text += (i === 0 ? "" : "&") + formEncoded(pairs[i][0]) + "=" + formEncoded(pairs[i][1]);
  return text;
};

// The engine's sort is stable; a merge of our own would be more code than this.
const sortPairs = uncurry(Arr.prototype.sort);
const byName = (one, other) => (one[0] < other[0] ? -1 : one[0] > other[0] ? 1 : 0);

const pairsIn = (init) => {
  if (init === undefined || init === null) return [];
  if (!isObject(init)) return decodeForm(withoutMark(toUsv(init), QUESTION));
  if (init[Sym.iterator] !== undefined && init[Sym.iterator] !== null) {
    const pairs = [];
    for (const item of init) {
      if (!isObject(item)) throw new TypeErr("URLSearchParams: each item must be a pair of name and value");
      const pair = [];
      for (const text of item) pair[pair.length] = toUsv(text);
      if (pair.length !== 2) throw new TypeErr("URLSearchParams: each item must be a pair of name and value");
      pairs[pairs.length] = pair;
    }
    return pairs;
  }
  const members = new NativeMap(), keys = ownKeys(init);
  for (let i = 0; i < keys.length; i++) {
    const descriptor = getOwnPropertyDescriptor(init, keys[i]);
    if (descriptor !== undefined && descriptor.enumerable) mapSet(members, toUsv(keys[i]), toUsv(init[keys[i]]));
  }
  const pairs = [];
  mapForEach(members, (value, name) => { pairs[pairs.length] = [name, value]; });
  return pairs;
};

let ownedBy, retakeParameters; // for URL alone

class URLSearchParams {
  #pairs;
  #tell; // the URL that these are of hears what they are now

  static {
    ownedBy = (parameters, tell) => { parameters.#tell = tell; };
    retakeParameters = (parameters, text) => { parameters.#pairs = decodeForm(text); };
  }
  constructor(init = undefined) { this.#pairs = pairsIn(init); }
  #changed() {
    if (this.#tell !== undefined) this.#tell(formText(this.#pairs));
  }
  #keep(isKept) {
    const kept = [], pairs = this.#pairs;
    for (let i = 0; i < pairs.length; i++) if (isKept(pairs[i])) kept[kept.length] = pairs[i];
    this.#pairs = kept;
  }
  get size() { return this.#pairs.length; }
  append(name, value) {
    const pair = [toUsv(name), toUsv(value)];
    this.#pairs[this.#pairs.length] = pair;
    this.#changed();
  }
  delete(name, value = undefined) {
    const wanted = toUsv(name), text = value === undefined ? undefined : toUsv(value);
    this.#keep((pair) => pair[0] !== wanted || (text !== undefined && pair[1] !== text));
    this.#changed();
  }
  get(name) {
    const wanted = toUsv(name), pairs = this.#pairs;
    for (let i = 0; i < pairs.length; i++) if (pairs[i][0] === wanted) return pairs[i][1];
    return null;
  }
  getAll(name) {
    const wanted = toUsv(name), pairs = this.#pairs, values = [];
    for (let i = 0; i < pairs.length; i++) if (pairs[i][0] === wanted) values[values.length] = pairs[i][1];
    return values;
  }
  has(name, value = undefined) {
    const wanted = toUsv(name), text = value === undefined ? undefined : toUsv(value), pairs = this.#pairs;
    for (let i = 0; i < pairs.length; i++)
      if (pairs[i][0] === wanted && (text === undefined || pairs[i][1] === text)) return true;
    return false;
  }
  set(name, value) {
    const wanted = toUsv(name), text = toUsv(value);
    let isSet = false;
    this.#keep((pair) => {
      if (pair[0] !== wanted) return true;
      const isFirst = !isSet;
      if (isFirst) pair[1] = text;
      isSet = true;
      return isFirst;
    });
    if (!isSet) this.#pairs[this.#pairs.length] = [wanted, text];
    this.#changed();
  }
  sort() {
    sortPairs(this.#pairs, byName);
    this.#changed();
  }
  forEach(callback, self = undefined) {
    if (typeof callback !== "function") throw new TypeErr("URLSearchParams.forEach needs a function");
    for (let i = 0; i < this.#pairs.length; i++) apply(callback, self, [this.#pairs[i][1], this.#pairs[i][0], this]);
  }
  *entries() { for (let i = 0; i < this.#pairs.length; i++) yield [this.#pairs[i][0], this.#pairs[i][1]]; }
  *keys() { for (let i = 0; i < this.#pairs.length; i++) yield this.#pairs[i][0]; }
  *values() { for (let i = 0; i < this.#pairs.length; i++) yield this.#pairs[i][1]; }
  toString() { return formText(this.#pairs); }
}

// As the web has them: members can be listed, a class has its name for a tag, and nothing of it changes.
const asOnTheWeb = (Class, tag) => {
  for (const object of [Class.prototype, Class]) {
    const keys = ownKeys(object);
    for (let i = 0; i < keys.length; i++) {
      const descriptor = getOwnPropertyDescriptor(object, keys[i]);
      if (keys[i] === "constructor" || (object === Class && keys[i] !== "parse" && keys[i] !== "canParse")) continue;
      defineProperty(object, keys[i], { ...descriptor, enumerable: true });
    }
  }
  constant(Class.prototype, Sym.toStringTag, tag);
};
method(URLSearchParams.prototype, Sym.iterator, URLSearchParams.prototype.entries);
asOnTheWeb(URL, "URL");
asOnTheWeb(URLSearchParams, "URLSearchParams");
asOnTheWeb(TextEncoder, "TextEncoder");
asOnTheWeb(TextDecoder, "TextDecoder");
