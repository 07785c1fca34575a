// Percent-encoding, with the percent-encode sets of the URL Standard.

const numberText = uncurry(G.Number.prototype.toString);
const toUpperCase = uncurry(Str.prototype.toUpperCase);

const createEncodeSet = (characters, parent) => {
  const set = create(null);
  if (parent !== undefined) for (const key in parent) set[key] = true;
  for (let i = 0; i < characters.length; i++) set[charCodeAt(characters, i)] = true;
  return freeze(set);
};
const C0_SET = createEncodeSet("\x7f");
const FRAGMENT_SET = createEncodeSet(' "<>`', C0_SET), QUERY_SET = createEncodeSet(' "#<>', C0_SET), SPECIAL_QUERY_SET = createEncodeSet("'", QUERY_SET);
const PATH_SET = createEncodeSet("?^`{}", QUERY_SET), USERINFO_SET = createEncodeSet("/:;=@[\\]|", PATH_SET);
const FORM_SET = createEncodeSet("$&+,!'()~%", USERINFO_SET);

const BYTE_ESCAPES = [];
for (let i = 0; i < 256; i++) BYTE_ESCAPES[i] = "%" + (i < 16 ? "0" : "") + toUpperCase(numberText(i, 16));
freeze(BYTE_ESCAPES);

const encodeByte = (byte, set) => (byte < 0x20 || byte > 0x7e || set[byte] === true ? BYTE_ESCAPES[byte] : fromCharCode(byte));

const MAY_NEED_ENCODING = /[^A-Za-z0-9._/-]/;
const percentEncode = (text, set) => {
  if (matchIn(MAY_NEED_ENCODING, text) === null) return text;
  const bytes = encodeUtf8(text), length = typedArrayByteLength(bytes);
  let encoded = "";
  for (let i = 0; i < length; i++) encoded += encodeByte(bytes[i], set);
  return encoded;
};

const parseHexDigit = (unit) => {
  if (unit >= 0x30 && unit <= 0x39) return unit - 0x30;
  const lower = unit | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
};
const percentDecode = (text) => {
  if (indexOf(text, "%") < 0) return text;
  const bytes = encodeUtf8(text), length = typedArrayByteLength(bytes), decoded = new Bytes(length);
  let at = 0;
  for (let i = 0; i < length; i++) {
    const high = bytes[i] === 0x25 && i + 2 < length ? parseHexDigit(bytes[i + 1]) : -1;
    const low = high < 0 ? -1 : parseHexDigit(bytes[i + 2]);
    if (low < 0) decoded[at++] = bytes[i];
    else {
      decoded[at++] = high * 16 + low;
      i += 2;
    }
  }
  return decodeUtf8(new Bytes(typedArrayBuffer(decoded), 0, at));
};
