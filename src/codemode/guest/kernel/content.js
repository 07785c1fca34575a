// Tool content (an image, audio or a file) as frozen handles with its metadata. The host keeps the bytes and checks
// the handles it gets back; this file hides the host's tag from programs.

let contentTag; // the key that marks a content part in JSON; undefined if the program has no content
let hasContents = false, shownContentCount = 0;
const contentHandles = new NativeMap(); // part id -> handle, so that the same part is the same object
const contentPlaceholders = new NativeWeakMap(); // handle -> its placeholder in JSON

const getContentPlaceholder = (value) => (isObject(value) ? weakGet(contentPlaceholders, value) : undefined);
const makeContentHandle = (told) => {
  const id = told[contentTag], known = mapGet(contentHandles, id);
  if (known !== undefined) return known;
  const place = create(null), handle = create(Obj.prototype), keys = ownKeys(told);
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i], property = { __proto__: null, value: told[key], writable: true, enumerable: true, configurable: true };
    defineProperty(place, key, property);
    if (key !== contentTag) defineProperty(handle, key, property);
  }
  weakSet(contentPlaceholders, freeze(handle), freeze(place));
  mapSet(contentHandles, id, handle);
  hasContents = true;
  return handle;
};

const mayHaveContents = (text) => contentTag !== undefined && indexOf(text, contentTag) >= 0;
const parseWithContents = (text, read) =>
  parse(text, (key, value, context) => {
    if (isObject(value)) return getOwnPropertyDescriptor(value, contentTag) === undefined ? value : makeContentHandle(value);
    return read === undefined ? value : read(key, value, context);
  });

const makeContentWriter = (write) => (key, value) => {
  const place = getContentPlaceholder(value);
  return place === undefined ? write(key, value) : place;
};
const writeContentsExactly = makeContentWriter(writeExactly), writeContentsAndBoxed = makeContentWriter(writeBoxedBigInt);
const toJsonWithContents = (value) => {
  try {
    return stringify(value, writeContentsExactly);
  } catch (error) {
    if (!isBoxedBigIntError(error)) throw error;
    return stringify(value, writeContentsAndBoxed);
  }
};

const configureContent = (tag) => {
  contentTag = tag;
  hasContents = false;
  shownContentCount = 0;
  mapClear(contentHandles);
};
