// Content of tools, as frozen handles: what a program reads of an image, audio or a file. The host has the bytes, and says
// of each handle whether it has given it; here is only what keeps the host's own words for one out of a program's sight.

let contentTag; // the key of an object that stands for a part; undefined where programs have no content
let hasContents = false, shownContents = 0;
const contentHandles = new NativeMap(); // a part's id -> its handle: the same part is the same object
const contentPlaces = new NativeWeakMap(); // a handle -> what stands for it in JSON

const placeOfContent = (value) => (isObject(value) ? weakGet(contentPlaces, value) : undefined);
const contentHandle = (told) => {
  const id = told[contentTag], known = mapGet(contentHandles, id);
  if (known !== undefined) return known;
  const place = create(null), handle = create(Obj.prototype), keys = ownKeys(told);
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i], property = { __proto__: null, value: told[key], writable: true, enumerable: true, configurable: true };
    defineProperty(place, key, property);
    if (key !== contentTag) defineProperty(handle, key, property);
  }
  weakSet(contentPlaces, freeze(handle), freeze(place));
  mapSet(contentHandles, id, handle);
  hasContents = true;
  return handle;
};

const mayHaveContents = (text) => contentTag !== undefined && indexOf(text, contentTag) >= 0;
const readContents = (text, read) =>
  parse(text, (key, value, context) => {
    if (isObject(value)) return getOwnPropertyDescriptor(value, contentTag) === undefined ? value : contentHandle(value);
    return read === undefined ? value : read(key, value, context);
  });

const writeContents = (write) => (key, value) => {
  const place = placeOfContent(value);
  return place === undefined ? write(key, value) : place;
};
const writeContentsExactly = writeContents(writeExactly), writeContentsAndBoxed = writeContents(writeBoxed);
const toJsonWithContents = (value) => {
  try {
    return stringify(value, writeContentsExactly);
  } catch (error) {
    if (!isOfBoxed(error)) throw error;
    return stringify(value, writeContentsAndBoxed);
  }
};

const takeContent = (tag) => {
  contentTag = tag;
  hasContents = false;
  shownContents = 0;
  mapClear(contentHandles);
};
