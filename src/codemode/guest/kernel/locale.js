// Locale-dependent text: en-US only, with dates in UTC. The engine ignores other locales and options and returns a
// wrong value, so these methods throw. `analysis/locale_calls.py` reports literal arguments before the program runs.

// In a function of its own, because the engine searches all top-level constants of the runtime for each name.
(() => {
const thisNumber = uncurry(G.Number.prototype.valueOf), toFixed = uncurry(G.Number.prototype.toFixed);
const thisBigInt = uncurry(G.BigInt.prototype.valueOf), bigIntText = uncurry(G.BigInt.prototype.toString);
const thisTime = uncurry(NativeDate.prototype.getTime), normalizeUnicode = uncurry(Str.prototype.normalize);
const toLower = uncurry(Str.prototype.toLowerCase), toUpper = uncurry(Str.prototype.toUpperCase);
const NativeBigInt = G.BigInt, isList = Arr.isArray;

const LOCALE_HINT = " is not available here: there is only en-US, with dates in UTC";
const firstLocale = (locales) => (isList(locales) ? locales[0] : locales);
const requireEnglish = (name, locales) => {
  const locale = firstLocale(locales);
  if (locale === undefined) return;
  const lower = typeof locale === "string" ? toLower(slice(locale, 0, 50)) : "";
  if (lower === "en-us" || lower === "en" || (name === COMPARE_NAME && slice(lower, 0, 3) === "en-")) return;
  throw new RangeErr(name + ": the locale " + describeValue(locale) + LOCALE_HINT);
};
const describeValue = (value) => (typeof value === "string" ? stringify(slice(value, 0, 50)) : typeof value);

// Options by name, each with the values that do not change the text.
const ANY_VALUE = freeze([]);
const NUMBER_OPTIONS = freeze({
  __proto__: null, style: ["decimal"], notation: ["standard"], numberingSystem: ["latn"], minimumFractionDigits: ANY_VALUE,
  maximumFractionDigits: ANY_VALUE, useGrouping: [true, false, "auto", "always"], signDisplay: ["auto"], currency: [],
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
    if (known[option] !== ANY_VALUE && !includes(known[option], value)) {
      const shown = typeof value === "boolean" || typeof value === "number" ? value : describeValue(value);
      throw new RangeErr(name + ": the option " + option + " (" + shown + ")" + LOCALE_HINT);
    }
    options[option] = value;
  }
  return options;
};

// --- numbers ---

const readDigitsOption = (name, options, option, otherwise) => {
  const value = options[option] === undefined ? otherwise : floor(+options[option]);
  if (value >= 0 && value <= 100) return value;
  throw new RangeErr(name + ": " + option + " must be a number from 0 to 100");
};
const groupThousands = (digits) => {
  let text = "", end = digits.length;
  for (; end > 3; end -= 3) text = "," + slice(digits, end - 3, end) + text;
  return slice(digits, 0, end) + text;
};
// Rounds as other engines do: on the shortest decimal text of the number, half away from zero.
const roundToText = (size, most) => {
  if (typeof size === "bigint") return bigIntText(size);
  if (size >= 1e21) return bigIntText(NativeBigInt(size));
  const text = "" + size, point = indexOf(text, ".");
  if (point < 0 || indexOf(text, "e") >= 0 || text.length - point - 1 <= most) return toFixed(size, most);
  const cut = NativeBigInt(slice(text, 0, point) + slice(text, point + 1, point + 1 + most));
  let digits = bigIntText(charCodeAt(text, point + 1 + most) >= 53 ? cut + 1n : cut);
  while (digits.length <= most) digits = "0" + digits;
  return slice(digits, 0, digits.length - most) + "." + slice(digits, digits.length - most);
};
const formatNumber = (name, value, locales, given) => {
  requireEnglish(name, locales);
  const options = readOptions(name, given, NUMBER_OPTIONS);
  const least = readDigitsOption(name, options, "minimumFractionDigits", 0);
  const isMinimumOmitted = options.minimumFractionDigits === undefined;
  const most = readDigitsOption(name, options, "maximumFractionDigits", least > 3 ? least : 3);
  if (least > most && !isMinimumOmitted) throw new RangeErr(name + ": minimumFractionDigits is more than maximumFractionDigits");
  if (value !== value) return "NaN";
  const isNegative = value < 0 || is(value, -0);
  if (value === 1 / 0 || value === -1 / 0) return isNegative ? "-\u221e" : "\u221e";
  const size = isNegative ? -value : value;
  let text = roundToText(size, most);
  let point = indexOf(text, ".");
  if (point < 0) point = text.length;
  let fraction = slice(text, point + 1), end = fraction.length;
  while (end > least && charCodeAt(fraction, end - 1) === 48) end--;
  fraction = slice(fraction, 0, end);
  while (fraction.length < least) fraction += "0";
  text = slice(text, 0, point);
  if (options.useGrouping !== false) text = groupThousands(text);
  return (isNegative ? "-" : "") + text + (fraction === "" ? "" : "." + fraction);
};
const NUMBER_NAME = "Number.toLocaleString", BIGINT_NAME = "BigInt.toLocaleString";
defineHidden(G.Number.prototype, "toLocaleString", {
  toLocaleString(...args) { return formatNumber(NUMBER_NAME, thisNumber(this), args[0], args[1]); },
}.toLocaleString);
defineHidden(G.BigInt.prototype, "toLocaleString", {
  toLocaleString(...args) { return formatNumber(BIGINT_NAME, thisBigInt(this), args[0], args[1]); },
}.toLocaleString);

// --- dates ---

const getUtc = {};
for (const part of ["FullYear", "Month", "Date", "Hours", "Minutes", "Seconds"])
  getUtc[part] = uncurry(NativeDate.prototype["getUTC" + part]);
freeze(getUtc);
const padTwo = (value) => (value < 10 ? "0" : "") + value;
const formatDay = (date) => getUtc.Month(date) + 1 + "/" + getUtc.Date(date) + "/" + getUtc.FullYear(date);
const formatTime = (date) => {
  const hours = getUtc.Hours(date), minutes = ":" + padTwo(getUtc.Minutes(date)) + ":" + padTwo(getUtc.Seconds(date));
  return (hours % 12 || 12) + minutes + (hours < 12 ? " AM" : " PM");
};
const DATE_FORMATTERS = freeze({
  __proto__: null,
  toLocaleString: (date) => formatDay(date) + ", " + formatTime(date),
  toLocaleDateString: formatDay,
  toLocaleTimeString: formatTime,
});
for (const key of ownKeys(DATE_FORMATTERS)) {
  const write = DATE_FORMATTERS[key], name = "Date." + key;
  defineHidden(NativeDate.prototype, key, {
    [key](...args) {
      const time = thisTime(this);
      requireEnglish(name, args[0]);
      const options = readOptions(name, args[1], DATE_OPTIONS);
      // A date with only some of its parts has another format.
      if ((options.year ?? options.month ?? options.day) !== undefined &&
        (options.year === undefined || options.month === undefined || options.day === undefined || key !== "toLocaleDateString"))
        throw new RangeErr(name + ": a date of some parts alone" + LOCALE_HINT);
      if (time !== time) return "Invalid Date";
      if (getUtc.FullYear(this) < 1) throw new RangeErr(name + ": a date before the year 1" + LOCALE_HINT);
      return write(this);
    },
  }[key]);
}

// --- arrays pass locale and options on to their items ---

for (const prototype of [Arr.prototype, getPrototypeOf(G.Uint8Array.prototype)]) {
  const native = prototype.toLocaleString;
  defineHidden(prototype, "toLocaleString", {
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

// Languages with case mappings of their own.
const SPECIAL_CASING_LOCALES = freeze(["tr", "az", "lt", "el"]);
for (const [key, change] of [["toLocaleLowerCase", toLower], ["toLocaleUpperCase", toUpper]])
  defineHidden(Str.prototype, key, {
    [key](...args) {
      const locale = firstLocale(args[0]);
      if (typeof locale === "string" && includes(SPECIAL_CASING_LOCALES, toLower(slice(locale, 0, 2))))
        throw new RangeErr("String." + key + ": the locale " + describeValue(locale) + LOCALE_HINT);
      return change(this);
    },
  }[key]);

// English collation: by letters, then by accents, then lower case before upper case.
const DIACRITICS = new G.RegExp("[\\u0300-\\u036f]", "g");
const isDigit = (unit) => unit >= 48 && unit <= 57;
const letterWeight = (unit) => unit + (isDigit(unit) ? 0x10000 : (unit >= 97 && unit <= 122) || unit > 127 ? 0x20000 : 0);
const findDigitsEnd = (text, at) => {
  while (at < text.length && isDigit(charCodeAt(text, at))) at++;
  return at;
};
const stripZeros = (text, at, end) => {
  while (at < end - 1 && charCodeAt(text, at) === 48) at++;
  return slice(text, at, end);
};
const compareLetters = (a, b, isNumeric) => {
  let i = 0, j = 0;
  while (i < a.length && j < b.length) {
    const one = charCodeAt(a, i), other = charCodeAt(b, j);
    if (isNumeric && isDigit(one) && isDigit(other)) {
      const aEnd = findDigitsEnd(a, i), bEnd = findDigitsEnd(b, j), n = stripZeros(a, i, aEnd), m = stripZeros(b, j, bEnd);
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
const compareUnits = (a, b) => (a === b ? 0 : a < b ? -1 : 1);
const collate = (a, b, options) => {
  if (a === b) return 0;
  const whole = normalizeUnicode(a, "NFD"), other = normalizeUnicode(b, "NFD"), sensitivity = options.sensitivity ?? "variant";
  const low = toLower(whole), otherLow = toLower(other);
  const letters = compareLetters(replaceIn(low, DIACRITICS, ""), replaceIn(otherLow, DIACRITICS, ""), options.numeric === true);
  if (letters !== 0 || sensitivity === "base") return letters;
  const accents = sensitivity === "case" ? 0 : compareUnits(low, otherLow);
  if (accents !== 0 || sensitivity === "accent") return accents;
  const isCaseOnly = sensitivity === "case";
  return isCaseOnly ? compareUnits(replaceIn(other, DIACRITICS, ""), replaceIn(whole, DIACRITICS, "")) : compareUnits(other, whole);
};
const COMPARE_NAME = "String.localeCompare";
defineHidden(Str.prototype, "localeCompare", {
  localeCompare(other, ...args) {
    if (this === undefined || this === null) throw new TypeErr(COMPARE_NAME + " needs a string");
    requireEnglish(COMPARE_NAME, args[0]);
    return collate(Str(this), Str(other), readOptions(COMPARE_NAME, args[1], COMPARE_OPTIONS));
  },
}.localeCompare);
})();
