// `fetch` and its responses. Bodies stay in a WeakMap until the program reads them.

const toBase64 = uncurry(Bytes.prototype.toBase64);
const fromBase64 = (text) => apply(Bytes.fromBase64, Bytes, [text]);
const toLowerCase = uncurry(Str.prototype.toLowerCase);
const arrayValues = uncurry(Arr.prototype.values);
const { keys: enumerableKeys } = Obj;

const definePrototype = (prototype, tag, members) => {
  const names = ownKeys(members);
  for (let i = 0; i < names.length; i++) {
    const descriptor = getOwnPropertyDescriptor(members, names[i]);
    freeze(descriptor.value === undefined ? descriptor.get : descriptor.value);
    defineProperty(prototype, names[i], { ...descriptor, enumerable: false });
  }
  defineConstant(prototype, Sym.toStringTag, tag);
  return freeze(prototype);
};

const pairsByHeaders = new NativeWeakMap(); // a headers object -> its [name, value] pairs, sorted, names in lower case
const getHeaderPairs = (headers) => {
  const pairs = isObject(headers) ? weakGet(pairsByHeaders, headers) : undefined;
  if (pairs === undefined) throw new TypeErr("this is not a headers object");
  return pairs;
};
const findHeader = (headers, name) => {
  const pairs = getHeaderPairs(headers), wanted = toLowerCase(Str(name));
  for (let i = 0; i < pairs.length; i++) if (pairs[i][0] === wanted) return pairs[i][1];
  return null;
};
const listed = (headers, pick) => {
  const pairs = getHeaderPairs(headers), list = [];
  for (let i = 0; i < pairs.length; i++) list[i] = pick(pairs[i][0], pairs[i][1]);
  return arrayValues(list);
};
const HeadersPrototype = definePrototype({}, "Headers", {
  get(name) { return findHeader(this, name); },
  has(name) { return findHeader(this, name) !== null; },
  entries() { return listed(this, (name, value) => [name, value]); },
  keys() { return listed(this, (name) => name); },
  values() { return listed(this, (_name, value) => value); },
  forEach(callback, self) {
    const pairs = getHeaderPairs(this);
    for (let i = 0; i < pairs.length; i++) apply(callback, self, [pairs[i][1], pairs[i][0], this]);
  },
  [Sym.iterator]() { return listed(this, (name, value) => [name, value]); },
});

const bodyStates = new NativeWeakMap(); // a response -> { answer, used }
const getBodyState = (response) => {
  const held = isObject(response) ? weakGet(bodyStates, response) : undefined;
  if (held === undefined) throw new TypeErr("this is not a response");
  return held;
};
const consumeBody = (response) => {
  const held = getBodyState(response);
  if (held.used) throw new TypeErr("the body of this response was already read");
  held.used = true;
  return held.answer;
};
const decodeBodyText = (answer) => {
  const text = answer.text === undefined ? decodeUtf8(fromBase64(answer.base64)) : answer.text;
  return charCodeAt(text, 0) === 0xfeff ? slice(text, 1) : text;
};
const decodeBodyBytes = (answer) => (answer.text === undefined ? fromBase64(answer.base64) : encodeUtf8(answer.text));
const ResponsePrototype = definePrototype({}, "Response", {
  get bodyUsed() { return getBodyState(this).used; },
  async text() { return decodeBodyText(consumeBody(this)); },
  async json() { return parse(decodeBodyText(consumeBody(this))); },
  async bytes() { return decodeBodyBytes(consumeBody(this)); },
  async arrayBuffer() { return typedArrayBuffer(decodeBodyBytes(consumeBody(this))); },
  clone() {
    const held = getBodyState(this);
    if (held.used) throw new TypeErr("the body of this response was already read");
    return createResponse(held.answer);
  },
});

const createResponse = (answer) => {
  const headers = create(HeadersPrototype);
  weakSet(pairsByHeaders, headers, answer.headers);
  const response = create(ResponsePrototype);
  const { status, statusText, url, redirected } = answer;
  const shown = { __proto__: null, ok: status >= 200 && status <= 299, status, statusText, url, redirected, headers };
  const names = ownKeys(shown);
  for (let i = 0; i < names.length; i++)
    defineProperty(response, names[i], { value: shown[names[i]], writable: false, enumerable: true, configurable: false });
  weakSet(bodyStates, response, { __proto__: null, answer, used: false });
  return response;
};

const toHeaderPairs = (given) => {
  const pairs = [];
  if (given === undefined || given === null) return pairs;
  if (!isObject(given)) throw new TypeErr("fetch: headers must be an object or pairs");
  if (typeof given[Sym.iterator] === "function") {
    for (const pair of given) {
      if (!isObject(pair) || pair.length !== 2) throw new TypeErr("fetch: each header must be a [name, value] pair");
      pairs[pairs.length] = [Str(pair[0]), Str(pair[1])];
    }
    return pairs;
  }
  const names = enumerableKeys(given);
  for (let i = 0; i < names.length; i++) pairs[i] = [names[i], Str(given[names[i]])];
  return pairs;
};

const BODY_TYPE_ERROR = "fetch: the body must be a string or bytes; use JSON.stringify for an object";
const readFetchArguments = (input, init) => {
  const options = init === undefined || init === null ? { __proto__: null } : init;
  const isRequest = isObject(input) && input.url !== undefined;
  const option = (key) => {
    const value = options[key];
    return value === undefined && isRequest ? input[key] : value;
  };
  const method = option("method"), body = option("body");
  const fields = {
    __proto__: null,
    url: Str(isRequest ? input.url : input),
    method: method === undefined ? "GET" : Str(method),
    headers: toHeaderPairs(option("headers")),
  };
  if (isObject(body)) fields.base64 = toBase64(getByteView(body, BODY_TYPE_ERROR));
  else if (body !== undefined && body !== null) fields.body = Str(body);
  return fields;
};

const guestFetch = freeze({
  fetch(input, init = undefined) {
    let fields;
    try {
      fields = readFetchArguments(input, init);
    } catch (error) {
      return rejectWith(error);
    }
    return request("fetch", "fetch", [fields]);
  },
}.fetch);
