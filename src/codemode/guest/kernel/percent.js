// Percent-encoding and the sets of characters that parts of a URL may not have, as the URL Standard names them.

const numberText = uncurry(G.Number.prototype.toString);
const toUpperCase = uncurry(Str.prototype.toUpperCase);

const setOf = (characters, parent) => {
  const set = create(null);
  if (parent !== undefined) for (const key in parent) set[key] = true;
  for (let i = 0; i < characters.length; i++) set[charCodeAt(characters, i)] = true;
  return freeze(set);
};
const C0_SET = setOf("\x7f");
const FRAGMENT_SET = setOf(' "<>`', C0_SET), QUERY_SET = setOf(' "#<>', C0_SET), SPECIAL_QUERY_SET = setOf("'", QUERY_SET);
const PATH_SET = setOf("?^`{}", QUERY_SET), USERINFO_SET = setOf("/:;=@[\\]|", PATH_SET);
const FORM_SET = setOf("$&+,!'()~%", USERINFO_SET);

const HEX = [];
for (let i = 0; i < 256; i++) HEX[i] = "%" + (i < 16 ? "0" : "") + toUpperCase(numberText(i, 16));
freeze(HEX);

const encodedByte = (byte, set) => (byte < 0x20 || byte > 0x7e || set[byte] === true ? HEX[byte] : fromCharCode(byte));

const NEEDS_LOOK = /[^A-Za-z0-9._/-]/;
const percentEncode = (text, set) => {
  if (matchIn(NEEDS_LOOK, text) === null) return text;
  const bytes = encodeUtf8(text), length = typedArrayByteLength(bytes);
  let encoded = "";
  for (let i = 0; i < length; i++) encoded += encodedByte(bytes[i], set);
  return encoded;
};

const hexDigit = (unit) => {
  if (unit >= 0x30 && unit <= 0x39) return unit - 0x30;
  const lower = unit | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
};
const percentDecoded = (text) => {
  if (indexOf(text, "%") < 0) return text;
  const bytes = encodeUtf8(text), length = typedArrayByteLength(bytes), decoded = new Bytes(length);
  let at = 0;
  for (let i = 0; i < length; i++) {
    const high = bytes[i] === 0x25 && i + 2 < length ? hexDigit(bytes[i + 1]) : -1;
    const low = high < 0 ? -1 : hexDigit(bytes[i + 2]);
    if (low < 0) decoded[at++] = bytes[i];
    else {
      decoded[at++] = high * 16 + low;
      i += 2;
    }
  }
  return decodeUtf8(new Bytes(typedArrayBuffer(decoded), 0, at));
};
