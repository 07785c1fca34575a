// Hosts of URLs, as the URL Standard parses and writes them. A host is its serialised text; undefined is a failure.

const FORBIDDEN_IN_HOST = /[\0\t\n\r #/:<>?@[\\\]^|]/;
const FORBIDDEN_IN_DOMAIN = /[\0-\x20#%/:<>?@[\\\]^|\x7f]/;
const NON_ASCII = /[^\0-\x7f]/;
const DECIMAL = /^[0-9]+$/, OCTAL = /^[0-7]+$/, HEXADECIMAL = /^[0-9a-f]+$/i;

const splitText = (text, separator) => {
  const parts = [];
  let start = 0;
  for (;;) {
    const end = indexOf(text, separator, start);
    if (end < 0) break;
    parts[parts.length] = slice(text, start, end);
    start = end + 1;
  }
  parts[parts.length] = slice(text, start);
  return parts;
};

// Names beyond ASCII are refused: mapping them takes tables as large as this runtime.
const parseHost = (text, isOpaque) => {
  if (charCodeAt(text, 0) === 0x5b) {
    if (charCodeAt(text, text.length - 1) !== 0x5d) return undefined;
    const pieces = parseIpv6(slice(text, 1, -1));
    return pieces === undefined ? undefined : "[" + serializeIpv6(pieces) + "]";
  }
  if (isOpaque) return matchIn(FORBIDDEN_IN_HOST, text) === null ? percentEncode(text, C0_SET) : undefined;
  const domain = toLowerCase(percentDecode(text));
  if (domain === "" || matchIn(NON_ASCII, domain) !== null || matchIn(FORBIDDEN_IN_DOMAIN, domain) !== null) return undefined;
  if (indexOf(domain, "xn--") >= 0 && hasInvalidPunycode(domain)) return undefined;
  return endsInNumber(domain) ? parseIpv4(domain) : domain;
};

// Whether a label is invalid Punycode (RFC 3492), or encodes a name that is never written so: valid names are in lower
// case and in NFKC form, and have no C1 controls. Labels of existing names have at most 63 characters.
const MAX_LABEL_LENGTH = 255;
const C1_CONTROL = /[\x80-\x9f]/;
const normalize = uncurry(Str.prototype.normalize);
const hasInvalidPunycode = (domain) => {
  const labels = splitText(domain, ".");
  for (let i = 0; i < labels.length; i++) {
    if (indexOf(labels[i], "xn--") !== 0) continue;
    const name = labels[i].length > MAX_LABEL_LENGTH ? undefined : decodePunycode(slice(labels[i], 4));
    if (name === undefined || matchIn(C1_CONTROL, name) !== null) return true;
    if (toLowerCase(normalize(name, "NFKC")) !== name) return true;
  }
  return false;
};
const decodePunycode = (text) => {
  const mark = lastIndexOf(text, "-");
  let name = mark > 0 ? slice(text, 0, mark) : "", at = mark < 0 ? 0 : mark + 1, count = name.length;
  let point = 128, index = 0, bias = 72;
  const starts = []; // of each character, in units
  for (let i = 0; i <= count; i++) starts[i] = i;
  if (at === text.length) return undefined;
  for (let isFirst = true; at < text.length; isFirst = false) {
    const before = index;
    for (let weight = 1, k = 36; ; k += 36) {
      const digit = decodePunycodeDigit(charCodeAt(text, at++));
      if (digit < 0) return undefined;
      index += digit * weight;
      const threshold = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
      if (digit < threshold) break;
      weight *= 36 - threshold;
      if (weight > 0x7fffffff) return undefined;
    }
    count++;
    bias = adaptBias(index - before, count, isFirst);
    point += floor(index / count);
    index %= count;
    if (point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) return undefined;
    const character = fromCodePoint(point), start = starts[index];
    name = slice(name, 0, start) + character + slice(name, start);
    for (let i = count; i > index; i--) starts[i] = starts[i - 1] + character.length;
    index++;
  }
  return name;
};
const decodePunycodeDigit = (unit) => {
  if (unit >= 0x61 && unit <= 0x7a) return unit - 0x61;
  return unit >= 0x30 && unit <= 0x39 ? unit - 0x16 : -1;
};
const adaptBias = (delta, count, isFirst) => {
  let left = floor(delta / (isFirst ? 700 : 2)), k = 0;
  left += floor(left / count);
  for (; left > 455; k += 36) left = floor(left / 35);
  return k + floor((36 * left) / (left + 38));
};

const endsInNumber = (domain) => {
  const end = charCodeAt(domain, domain.length - 1) === 0x2e ? domain.length - 1 : domain.length;
  const last = slice(domain, lastIndexOf(slice(domain, 0, end), ".") + 1, end);
  return matchIn(DECIMAL, last) !== null || parseIpv4Number(last) !== undefined;
};

const parseIpv4Number = (text) => {
  if (text === "") return undefined;
  const isHexadecimal = text.length >= 2 && charCodeAt(text, 0) === 0x30 && charCodeAt(text, 1) === 0x78;
  if (isHexadecimal) {
    const digits = slice(text, 2);
    if (digits === "") return 0;
    return matchIn(HEXADECIMAL, digits) === null ? undefined : parseInteger(digits, 16);
  }
  if (text.length >= 2 && charCodeAt(text, 0) === 0x30)
    return matchIn(OCTAL, text) === null ? undefined : parseInteger(text, 8);
  return matchIn(DECIMAL, text) === null ? undefined : parseInteger(text, 10);
};

const parseIpv4 = (domain) => {
  const parts = splitText(domain, ".");
  let count = parts.length;
  if (parts[count - 1] === "" && count > 1) count--;
  if (count > 4) return undefined;
  let address = 0;
  for (let i = 0; i < count; i++) {
    const number = parseIpv4Number(parts[i]), isLast = i === count - 1;
    if (number === undefined || number >= (isLast ? 256 ** (5 - count) : 256)) return undefined;
    address += isLast ? number : number * 256 ** (3 - i);
  }
  let text = "";
  for (let i = 3; i >= 0; i--) text += (floor(address / 256 ** i) % 256) + (i > 0 ? "." : "");
  return text;
};

// The dotted IPv4 end of an IPv6 address, as two pieces.
const parseIpv4Tail = (text) => {
  const parts = splitText(text, ".");
  if (parts.length !== 4) return undefined;
  const bytes = [];
  for (let i = 0; i < 4; i++) {
    const part = parts[i];
    if (matchIn(DECIMAL, part) === null || part.length > 3 || (part.length > 1 && charCodeAt(part, 0) === 0x30)) return undefined;
    bytes[i] = parseInteger(part, 10);
    if (bytes[i] > 255) return undefined;
  }
  return [bytes[0] * 256 + bytes[1], bytes[2] * 256 + bytes[3]];
};

const parseIpv6Pieces = (text, pieces, mayEndInIpv4) => {
  if (text === "") return true;
  const parts = splitText(text, ":");
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i];
    if (mayEndInIpv4 && i === parts.length - 1 && indexOf(part, ".") >= 0) {
      const end = parseIpv4Tail(part);
      if (end === undefined) return false;
      pieces[pieces.length] = end[0];
      pieces[pieces.length] = end[1];
    } else if (part.length > 4 || matchIn(HEXADECIMAL, part) === null) return false;
    else pieces[pieces.length] = parseInteger(part, 16);
  }
  return true;
};

const MAX_IPV6_LENGTH = 45; // six pieces of four digits and an address with dots
const parseIpv6 = (text) => {
  if (text.length > MAX_IPV6_LENGTH) return undefined;
  const gap = indexOf(text, "::"), before = [], after = [];
  if (gap < 0) return parseIpv6Pieces(text, before, true) && before.length === 8 ? before : undefined;
  if (!parseIpv6Pieces(slice(text, 0, gap), before, false) || !parseIpv6Pieces(slice(text, gap + 2), after, true)) return undefined;
  const zeros = 8 - before.length - after.length;
  if (zeros < 1) return undefined;
  for (let i = 0; i < zeros; i++) before[before.length] = 0;
  for (let i = 0; i < after.length; i++) before[before.length] = after[i];
  return before;
};

const serializeIpv6 = (pieces) => {
  let longest = 1, start = -1; // a single zero is not compressed
  for (let i = 0; i < 8; i++) {
    let end = i;
    while (end < 8 && pieces[end] === 0) end++;
    if (end - i > longest) {
      longest = end - i;
      start = i;
    }
  }
  let text = "";
  for (let i = 0; i < 8; i++) {
    if (i === start) {
      text += i === 0 ? "::" : ":";
      i += longest - 1;
      continue;
    }
    text += numberText(pieces[i], 16) + (i < 7 ? ":" : "");
  }
  return text;
};
