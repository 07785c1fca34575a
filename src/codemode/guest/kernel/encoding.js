// TextEncoder and TextDecoder: UTF-8 alone, with fatal, ignoreBOM and streams.

const NO_BYTES = "TextDecoder.decode(input): the input must be an ArrayBuffer or a view of one";
const UTF8_LABELS = freeze({
  __proto__: null, "utf-8": 1, utf8: 1, "unicode-1-1-utf-8": 1, unicode11utf8: 1, unicode20utf8: 1, "x-unicode20utf8": 1,
});

const toUsv = (value) => {
  if (typeof value === "symbol") throw new TypeErr("a symbol is no text");
  return wellFormed(Str(value));
};

// Without the spaces and control characters at both ends. A pattern would look at each of them again and again.
const withoutBlanksAround = (text) => {
  let start = 0, end = text.length;
  while (start < end && text.charCodeAt(start) <= 0x20) start++;
  while (end > start && text.charCodeAt(end - 1) <= 0x20) end--;
  return slice(text, start, end);
};

class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(input = "") { return encodeUtf8(toUsv(input)); }
  encodeInto(source, destination) {
    const text = toUsv(source);
    if (!isView(destination) || typedArrayTag(destination) !== "Uint8Array")
      throw new TypeErr("TextEncoder.encodeInto(source, destination): the destination must be a Uint8Array");
    return encodeInto(text, destination, typedArrayByteLength(destination));
  }
}

class TextDecoder {
  #fatal;
  #ignoreBom;
  #state; // undefined between two texts
  #isStarted = false; // whether the first character is past, which may be the mark

  constructor(label = "utf-8", options = undefined) {
    const name = toLowerCase(withoutBlanksAround(toUsv(label)));
    if (UTF8_LABELS[name] === undefined)
      throw new RangeErr("TextDecoder: the encoding " + stringify(clip(name, MAX_NAME)) + " is not available: only utf-8 is");
    if (options !== undefined && options !== null && !isObject(options)) throw new TypeErr("TextDecoder: the options must be an object");
    this.#fatal = !!(options ?? NOTHING_GIVEN).fatal;
    this.#ignoreBom = !!(options ?? NOTHING_GIVEN).ignoreBOM;
  }
  get encoding() { return "utf-8"; }
  get fatal() { return this.#fatal; }
  get ignoreBOM() { return this.#ignoreBom; }
  decode(input = undefined, options = undefined) {
    const isLast = !(options ?? NOTHING_GIVEN).stream;
    const bytes = input === undefined ? new Bytes(0) : bytesIn(input, NO_BYTES);
    const state = this.#state ?? newDecoding();
    let text = decodeMore(state, bytes, isLast);
    if (!this.#isStarted && text !== "") {
      this.#isStarted = true;
      if (!this.#ignoreBom && charCodeAt(text, 0) === 0xfeff) text = slice(text, 1);
    }
    const isBroken = this.#fatal && state.broken > 0;
    if (isLast || isBroken) {
      this.#state = undefined;
      this.#isStarted = false;
    } else this.#state = state;
    if (isBroken) throw new TypeErr("the encoded data was not valid for encoding utf-8");
    return text;
  }
}
