// UTF-8 by the Encoding Standard, for bodies of `fetch`, percent-encoding, TextEncoder and TextDecoder.

const Bytes = G.Uint8Array, NativeArrayBuffer = G.ArrayBuffer;
const TypedArrayPrototype = getPrototypeOf(Bytes.prototype);
const uncurryGetter = (object, key) => uncurry(getOwnPropertyDescriptor(object, key).get);
const typedArrayTag = uncurryGetter(TypedArrayPrototype, Sym.toStringTag);
const typedArrayBuffer = uncurryGetter(TypedArrayPrototype, "buffer");
const typedArrayOffset = uncurryGetter(TypedArrayPrototype, "byteOffset");
const typedArrayByteLength = uncurryGetter(TypedArrayPrototype, "byteLength");
const arrayBufferLength = uncurryGetter(NativeArrayBuffer.prototype, "byteLength");
const isView = NativeArrayBuffer.isView;
const DataViewPrototype = G.DataView.prototype;
const viewBuffer = uncurryGetter(DataViewPrototype, "buffer");
const viewOffset = uncurryGetter(DataViewPrototype, "byteOffset");
const viewLength = uncurryGetter(DataViewPrototype, "byteLength");
const { fromCharCode, fromCodePoint } = Str;
const wellFormed = uncurry(Str.prototype.toWellFormed);

// A Uint8Array of the bytes of a buffer or of a view of one, without a copy. Anything else is a TypeError.
const getByteView = (source, refusal) => {
  if (isView(source)) {
    if (typedArrayTag(source) === undefined) return new Bytes(viewBuffer(source), viewOffset(source), viewLength(source));
    return new Bytes(typedArrayBuffer(source), typedArrayOffset(source), typedArrayByteLength(source));
  }
  try {
    arrayBufferLength(source);
  } catch {
    throw new TypeErr(refusal);
  }
  return new Bytes(source);
};

// State of a decoder between chunks: the code point so far, how many bytes it still needs, and the bounds of
// the next one. `broken` counts invalid sequences.
const newDecoderState = () => ({ __proto__: null, point: 0, needed: 0, lower: 0x80, upper: 0xbf, broken: 0 });

const UNITS_PER_CALL = 4096;
const unitsToText = (units) => apply(fromCharCode, undefined, units);

// One U+FFFD for each maximal part of an invalid sequence. With `isLast` an unfinished sequence is invalid.
const decodeChunk = (state, bytes, isLast) => {
  let text = "", units = [], at = 0, { point, needed, lower, upper, broken } = state;
  const length = typedArrayByteLength(bytes);
  for (let i = 0; i < length; i++) {
    const byte = bytes[i];
    if (at >= UNITS_PER_CALL) {
      text += unitsToText(units);
      units = [];
      at = 0;
    }
    if (needed > 0) {
      const fits = byte >= lower && byte <= upper;
      lower = 0x80;
      upper = 0xbf;
      if (fits) {
        point = (point << 6) | (byte & 0x3f);
        if (--needed > 0) continue;
        if (point > 0xffff) units[at++] = 0xd7c0 + (point >> 10);
        units[at++] = point > 0xffff ? 0xdc00 | (point & 0x3ff) : point;
        continue;
      }
      needed = 0;
      broken++;
      units[at++] = 0xfffd;
    }
    if (byte < 0x80) units[at++] = byte;
    else if (byte < 0xc2 || byte > 0xf4) {
      broken++;
      units[at++] = 0xfffd;
    } else if (byte < 0xe0) {
      needed = 1;
      point = byte & 0x1f;
    } else if (byte < 0xf0) {
      needed = 2;
      point = byte & 0xf;
      if (byte === 0xe0) lower = 0xa0;
      if (byte === 0xed) upper = 0x9f;
    } else {
      needed = 3;
      point = byte & 0x7;
      if (byte === 0xf0) lower = 0x90;
      if (byte === 0xf4) upper = 0x8f;
    }
  }
  if (isLast && needed > 0) {
    needed = 0;
    broken++;
    units[at++] = 0xfffd;
  }
  state.point = point;
  state.needed = needed;
  state.lower = lower;
  state.upper = upper;
  state.broken = broken;
  return text + unitsToText(units);
};
const decodeUtf8 = (bytes) => decodeChunk(newDecoderState(), bytes, true);

// Encodes as much of a well-formed text as fits. Returns the number of units read and of bytes written.
// Like `utf8Length` it calls a method by name: no guest text reaches it before the runtime is complete.
const encodeInto = (text, bytes, room) => {
  let at = 0, i = 0;
  for (const length = text.length; i < length; i++) {
    let point = text.charCodeAt(i);
    if (point < 0x80) {
      if (at >= room) break;
      bytes[at++] = point;
      continue;
    }
    const isPair = point >= 0xd800 && point <= 0xdbff;
    if (at + (point < 0x800 ? 2 : isPair ? 4 : 3) > room) break;
    if (point < 0x800) bytes[at++] = 0xc0 | (point >> 6);
    else {
      if (isPair) {
        point = 0x10000 + ((point - 0xd800) << 10) + (text.charCodeAt(++i) - 0xdc00);
        bytes[at++] = 0xf0 | (point >> 18);
        bytes[at++] = 0x80 | ((point >> 12) & 0x3f);
      } else bytes[at++] = 0xe0 | (point >> 12);
      bytes[at++] = 0x80 | ((point >> 6) & 0x3f);
    }
    bytes[at++] = 0x80 | (point & 0x3f);
  }
  return { read: i, written: at };
};

const encodeUtf8 = (text) => {
  const length = utf8Length(text), bytes = new Bytes(length);
  encodeInto(text, bytes, length);
  return bytes;
};
