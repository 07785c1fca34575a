// TextEncoder and TextDecoder: UTF-8 only, with the options fatal, ignoreBOM and stream.

const INPUT_TYPE_ERROR = "TextDecoder.decode(input): the input must be an ArrayBuffer or a view of one";
const UTF8_LABELS = freeze({
  __proto__: null, "utf-8": 1, utf8: 1, "unicode-1-1-utf-8": 1, unicode11utf8: 1, unicode20utf8: 1, "x-unicode20utf8": 1,
});

const toUsvString = (value) => {
  if (typeof value === "symbol") throw new TypeErr("a symbol is no text");
  return wellFormed(Str(value));
};

// Strips spaces and control characters from both ends. A pattern could take quadratic time.
const trimControlAndSpace = (text) => {
  let start = 0, end = text.length;
  while (start < end && text.charCodeAt(start) <= 0x20) start++;
  while (end > start && text.charCodeAt(end - 1) <= 0x20) end--;
  return slice(text, start, end);
};

class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(input = "") { return encodeUtf8(toUsvString(input)); }
  encodeInto(source, destination) {
    const text = toUsvString(source);
    if (!isView(destination) || typedArrayTag(destination) !== "Uint8Array")
      throw new TypeErr("TextEncoder.encodeInto(source, destination): the destination must be a Uint8Array");
    return encodeInto(text, destination, typedArrayByteLength(destination));
  }
}

class TextDecoder {
  #fatal;
  #ignoreBom;
  #state; // undefined when no stream is open
  #isStarted = false; // whether the first character, which may be a byte order mark, was decoded

  constructor(label = "utf-8", options = undefined) {
    const name = toLowerCase(trimControlAndSpace(toUsvString(label)));
    if (UTF8_LABELS[name] === undefined)
      throw new RangeErr("TextDecoder: the encoding " + stringify(clip(name, MAX_NAME_LENGTH)) + " is not available: only utf-8 is");
    if (options !== undefined && options !== null && !isObject(options)) throw new TypeErr("TextDecoder: the options must be an object");
    this.#fatal = !!(options ?? EMPTY_OBJECT).fatal;
    this.#ignoreBom = !!(options ?? EMPTY_OBJECT).ignoreBOM;
  }
  get encoding() { return "utf-8"; }
  get fatal() { return this.#fatal; }
  get ignoreBOM() { return this.#ignoreBom; }
  decode(input = undefined, options = undefined) {
    const isLast = !(options ?? EMPTY_OBJECT).stream;
    const bytes = input === undefined ? new Bytes(0) : getByteView(input, INPUT_TYPE_ERROR);
    const state = this.#state ?? newDecoderState();
    let text = decodeChunk(state, bytes, isLast);
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
