// Text that depends on a locale. There is en-US, and dates are in UTC. The engine would ignore anything else and give a
// wrong value, so it throws; `analysis/locale_calls.py` reports what is written as a literal before the program runs.

// In a function of its own: the engine looks for each name among all constants of the kernel's.
(() => {
const toNumber = uncurry(G.Number.prototype.valueOf), toFixed = uncurry(G.Number.prototype.toFixed);
const toBigInt = uncurry(G.BigInt.prototype.valueOf), bigIntText = uncurry(G.BigInt.prototype.toString);
const toTime = uncurry(NativeDate.prototype.getTime), unicodeForm = uncurry(Str.prototype.normalize);
const toLower = uncurry(Str.prototype.toLowerCase), toUpper = uncurry(Str.prototype.toUpperCase);
const BigIntOf = G.BigInt, isList = Arr.isArray;

const LOCALE_HINT = " is not available here: there is only en-US, with dates in UTC";
const firstLocale = (locales) => (isList(locales) ? locales[0] : locales);
const requireEnglish = (name, locales) => {
  const locale = firstLocale(locales);
  if (locale === undefined) return;
  const lower = typeof locale === "string" ? toLower(slice(locale, 0, 50)) : "";
  if (lower === "en-us" || lower === "en" || (name === COMPARE_NAME && slice(lower, 0, 3) === "en-")) return;
  throw new RangeErr(name + ": the locale " + quoted(locale) + LOCALE_HINT);
};
const quoted = (value) => (typeof value === "string" ? stringify(slice(value, 0, 50)) : typeof value);

// Options by name, each with the values under which the text is as it is without it.
const ANY = freeze([]);
const NUMBER_OPTIONS = freeze({
  __proto__: null, style: ["decimal"], notation: ["standard"], numberingSystem: ["latn"], minimumFractionDigits: ANY,
  maximumFractionDigits: ANY, useGrouping: [true, false, "auto", "always"], signDisplay: ["auto"], currency: [],
  currencyDisplay: [], currencySign: [], unit: [], unitDisplay: [], compactDisplay: [], minimumIntegerDigits: [1],
  minimumSignificantDigits: [], maximumSignificantDigits: [], roundingPriority: ["auto"], roundingIncrement: [1],
  roundingMode: ["halfExpand"], trailingZeroDisplay: ["auto"],
});
const DATE_OPTIONS = freeze({
  __proto__: null, timeZone: ["UTC", "Etc/UTC", "GMT"], calendar: ["gregory"], numberingSystem: ["latn"], hour12: [true],
  hourCycle: ["h12"], weekday: [], era: [], year: ["numeric"], month: ["numeric"], day: ["numeric"], dayPeriod: [],
  hour: [], minute: [], second: [], fractionalSecondDigits: [], timeZoneName: [], dateStyle: [], timeStyle: [],
});
const COMPARE_OPTIONS = freeze({
  __proto__: null, usage: ["sort"], numeric: [true, false], caseFirst: ["false"], ignorePunctuation: [false],
  sensitivity: ["base", "accent", "case", "variant"], collation: ["default"],
});
const NO_OPTIONS = freeze({ __proto__: null });
const includes = (values, value) => {
  for (let i = 0; i < values.length; i++) if (values[i] === value) return true;
  return false;
};
const readOptions = (name, given, known) => {
  if (given === undefined) return NO_OPTIONS;
  if (given === null) throw new TypeErr(name + ": options must be an object, not null");
  const options = { __proto__: null }, names = ownKeys(known);
  for (let i = 0; i < names.length; i++) {
    const option = names[i], value = given[option];
    if (value === undefined) continue;
    if (known[option] !== ANY && !includes(known[option], value)) {
      const shown = typeof value === "boolean" || typeof value === "number" ? value : quoted(value);
      throw new RangeErr(name + ": the option " + option + " (" + shown + ")" + LOCALE_HINT);
    }
    options[option] = value;
  }
  return options;
};

// --- numbers ---

const digitsOption = (name, options, option, otherwise) => {
  const value = options[option] === undefined ? otherwise : floor(+options[option]);
  if (value >= 0 && value <= 100) return value;
  throw new RangeErr(name + ": " + option + " must be a number from 0 to 100");
};
const grouped = (digits) => {
  let text = "", end = digits.length;
  for (; end > 3; end -= 3) text = "," + slice(digits, end - 3, end) + text;
  return slice(digits, 0, end) + text;
};
// As other engines round: the shortest decimal text of the number, half away from zero.
const rounded = (size, most) => {
  if (typeof size === "bigint") return bigIntText(size);
  if (size >= 1e21) return bigIntText(BigIntOf(size));
  const text = "" + size, point = indexOf(text, ".");
  if (point < 0 || indexOf(text, "e") >= 0 || text.length - point - 1 <= most) return toFixed(size, most);
  const cut = BigIntOf(slice(text, 0, point) + slice(text, point + 1, point + 1 + most));
  let digits = bigIntText(charCodeAt(text, point + 1 + most) >= 53 ? cut + 1n : cut);
  while (digits.length <= most) digits = "0" + digits;
  return slice(digits, 0, digits.length - most) + "." + slice(digits, digits.length - most);
};
const localNumber = (name, value, locales, given) => {
  requireEnglish(name, locales);
  const options = readOptions(name, given, NUMBER_OPTIONS);
  const least = digitsOption(name, options, "minimumFractionDigits", 0);
  const isOnlyMost = options.minimumFractionDigits === undefined;
  const most = digitsOption(name, options, "maximumFractionDigits", least > 3 ? least : 3);
  if (least > most && !isOnlyMost) throw new RangeErr(name + ": minimumFractionDigits is more than maximumFractionDigits");
  if (value !== value) return "NaN";
  const isNegative = value < 0 || is(value, -0);
  if (value === 1 / 0 || value === -1 / 0) return isNegative ? "-\u221e" : "\u221e";
  const size = isNegative ? -value : value;
  let text = rounded(size, most);
  let point = indexOf(text, ".");
  if (point < 0) point = text.length;
  let fraction = slice(text, point + 1), end = fraction.length;
  while (end > least && charCodeAt(fraction, end - 1) === 48) end--;
  fraction = slice(fraction, 0, end);
  while (fraction.length < least) fraction += "0";
  text = slice(text, 0, point);
  if (options.useGrouping !== false) text = grouped(text);
  return (isNegative ? "-" : "") + text + (fraction === "" ? "" : "." + fraction);
};
const NUMBER_NAME = "Number.toLocaleString", BIGINT_NAME = "BigInt.toLocaleString";
method(G.Number.prototype, "toLocaleString", {
  toLocaleString(...args) { return localNumber(NUMBER_NAME, toNumber(this), args[0], args[1]); },
}.toLocaleString);
method(G.BigInt.prototype, "toLocaleString", {
  toLocaleString(...args) { return localNumber(BIGINT_NAME, toBigInt(this), args[0], args[1]); },
}.toLocaleString);

// --- dates ---

const utc = {};
for (const part of ["FullYear", "Month", "Date", "Hours", "Minutes", "Seconds"])
  utc[part] = uncurry(NativeDate.prototype["getUTC" + part]);
freeze(utc);
const twoDigits = (value) => (value < 10 ? "0" : "") + value;
const dayText = (date) => utc.Month(date) + 1 + "/" + utc.Date(date) + "/" + utc.FullYear(date);
const timeText = (date) => {
  const hours = utc.Hours(date), minutes = ":" + twoDigits(utc.Minutes(date)) + ":" + twoDigits(utc.Seconds(date));
  return (hours % 12 || 12) + minutes + (hours < 12 ? " AM" : " PM");
};
const DATE_TEXTS = freeze({
  __proto__: null,
  toLocaleString: (date) => dayText(date) + ", " + timeText(date),
  toLocaleDateString: dayText,
  toLocaleTimeString: timeText,
});
for (const key of ownKeys(DATE_TEXTS)) {
  const write = DATE_TEXTS[key], name = "Date." + key;
  method(NativeDate.prototype, key, {
    [key](...args) {
      const time = toTime(this);
      requireEnglish(name, args[0]);
      const options = readOptions(name, args[1], DATE_OPTIONS);
      // Of some parts alone the text is another one.
      if ((options.year ?? options.month ?? options.day) !== undefined &&
        (options.year === undefined || options.month === undefined || options.day === undefined || key !== "toLocaleDateString"))
        throw new RangeErr(name + ": a date of some parts alone" + LOCALE_HINT);
      if (time !== time) return "Invalid Date";
      if (utc.FullYear(this) < 1) throw new RangeErr(name + ": a date before the year 1" + LOCALE_HINT);
      return write(this);
    },
  }[key]);
}

// --- arrays hand on what they are given ---

for (const prototype of [Arr.prototype, getPrototypeOf(G.Uint8Array.prototype)]) {
  const native = prototype.toLocaleString;
  method(prototype, "toLocaleString", {
    toLocaleString(...args) {
      if (args[0] === undefined && args[1] === undefined) return apply(native, this, []);
      const count = this.length;
      let text = "";
      for (let i = 0; i < count; i++) {
        const item = this[i];
        text += (i > 0 ? "," : "") + (item === undefined || item === null ? "" : item.toLocaleString(args[0], args[1]));
      }
      return text;
    },
  }.toLocaleString);
}

// --- text ---

// Letters of these have other cases than everywhere else.
const OTHER_CASES = freeze(["tr", "az", "lt", "el"]);
for (const [key, change] of [["toLocaleLowerCase", toLower], ["toLocaleUpperCase", toUpper]])
  method(Str.prototype, key, {
    [key](...args) {
      const locale = firstLocale(args[0]);
      if (typeof locale === "string" && includes(OTHER_CASES, toLower(slice(locale, 0, 2))))
        throw new RangeErr("String." + key + ": the locale " + quoted(locale) + LOCALE_HINT);
      return change(this);
    },
  }[key]);

// As English sorts: first by letters, then by accents, then small before capital letters.
const MARKS = new G.RegExp("[\\u0300-\\u036f]", "g");
const isDigit = (unit) => unit >= 48 && unit <= 57;
const letterWeight = (unit) => unit + (isDigit(unit) ? 0x10000 : (unit >= 97 && unit <= 122) || unit > 127 ? 0x20000 : 0);
const digitsEnd = (text, at) => {
  while (at < text.length && isDigit(charCodeAt(text, at))) at++;
  return at;
};
const withoutZeros = (text, at, end) => {
  while (at < end - 1 && charCodeAt(text, at) === 48) at++;
  return slice(text, at, end);
};
const compareLetters = (a, b, isNumeric) => {
  let i = 0, j = 0;
  while (i < a.length && j < b.length) {
    const one = charCodeAt(a, i), other = charCodeAt(b, j);
    if (isNumeric && isDigit(one) && isDigit(other)) {
      const aEnd = digitsEnd(a, i), bEnd = digitsEnd(b, j), n = withoutZeros(a, i, aEnd), m = withoutZeros(b, j, bEnd);
      if (n !== m) return n.length !== m.length ? (n.length < m.length ? -1 : 1) : n < m ? -1 : 1;
      i = aEnd;
      j = bEnd;
    } else {
      if (one !== other) return letterWeight(one) < letterWeight(other) ? -1 : 1;
      i++;
      j++;
    }
  }
  return i < a.length ? 1 : j < b.length ? -1 : 0;
};
const comparePlain = (a, b) => (a === b ? 0 : a < b ? -1 : 1);
const compareTexts = (a, b, options) => {
  if (a === b) return 0;
  const whole = unicodeForm(a, "NFD"), other = unicodeForm(b, "NFD"), sensitivity = options.sensitivity ?? "variant";
  const low = toLower(whole), otherLow = toLower(other);
  const letters = compareLetters(replaceIn(low, MARKS, ""), replaceIn(otherLow, MARKS, ""), options.numeric === true);
  if (letters !== 0 || sensitivity === "base") return letters;
  const accents = sensitivity === "case" ? 0 : comparePlain(low, otherLow);
  if (accents !== 0 || sensitivity === "accent") return accents;
  const isCase = sensitivity === "case";
  return isCase ? comparePlain(replaceIn(other, MARKS, ""), replaceIn(whole, MARKS, "")) : comparePlain(other, whole);
};
const COMPARE_NAME = "String.localeCompare";
method(Str.prototype, "localeCompare", {
  localeCompare(other, ...args) {
    if (this === undefined || this === null) throw new TypeErr(COMPARE_NAME + " needs a string");
    requireEnglish(COMPARE_NAME, args[0]);
    return compareTexts(Str(this), Str(other), readOptions(COMPARE_NAME, args[1], COMPARE_OPTIONS));
  },
}.localeCompare);
})();
