// Bounded text of values that the guest controls. Every read may run guest code, so every read is in a try.

const MAX_NAME_LENGTH = 100, MAX_MESSAGE_LENGTH = 4000, MAX_STACK_LENGTH = 4000, MAX_DETAILS_LENGTH = 16000;
// Lines from here on belong to the guest runtime, which is evaluated after that many line breaks.
const RUNTIME_FIRST_LINE = 1048576;
// A program is the body of one of these functions and starts after `open`, in the same line. A module has no wrapper.
const DIRECTIVES = freeze({ __proto__: null, sloppy: "", strict: '"use strict";' });
const makeWrapper = (kind, parameters) =>
  freeze({ __proto__: null, open: "(async function(" + parameters + "){" + DIRECTIVES[kind], close: "\n})" });
const MODULE_WRAPPER = freeze({ __proto__: null, open: "", close: "" });
const WRAPPERS = freeze({
  __proto__: null, sloppy: makeWrapper("sloppy", ""), strict: makeWrapper("strict", ""), module: MODULE_WRAPPER,
});
let wrapper = WRAPPERS.sloppy;
const isModule = () => wrapper === MODULE_WRAPPER;
// Bytes before the program's text in its first line.
const getPrefixBytes = () => (isModule() ? moduleConfig.prefix : wrapper.open.length);

const clip = (text, length) => (text.length > length ? slice(text, 0, length) + "\u2026" : text);

const toSafeText = (value, length) => {
  try {
    if (typeof value === "symbol") return "Symbol()";
    const large = getLargeString(value);
    if (large !== undefined) return clip(readLargeText(large), length);
    return clip(typeof value === "string" ? value : Str(value), length);
  } catch {
    return "[unprintable]";
  }
};

const readSafely = (object, key, length) => {
  try {
    const value = object[key];
    return value === undefined ? "" : toSafeText(value, length);
  } catch {
    return "";
  }
};
const formatThrown = (error) => (isObject(error) ? readSafely(error, "message", MAX_MESSAGE_LENGTH) : toSafeText(error, MAX_MESSAGE_LENGTH));
const getTypeName = (value) => (value === null ? "null" : typeof value);

// The engine counts columns in UTF-8 bytes; error positions use UTF-16 units.
let programText = "", isProgramAscii;
// The value of a program's last statement: {object, at, length, row, column}. `length` characters were inserted
// before that statement, at offset `at` of the program's text; `row` and `column` are computed on first use.
let lastValue;
const normalizeProgramText = () => {
  if (isModule()) {
    programText = slice(programText, truncateUtf8(programText, moduleConfig.prefix).length);
    if (lastValue !== undefined) programText = slice(programText, 0, lastValue.at) + slice(programText, lastValue.at + lastValue.length);
  }
  isProgramAscii = utf8Length(programText) === programText.length;
};
const toUtf16Column = (row, column) => {
  if (isProgramAscii === undefined) normalizeProgramText();
  if (isProgramAscii) return column;
  let start = 0;
  for (let i = 1; i < row; i++) {
    const end = indexOf(programText, "\n", start);
    if (end < 0) return column;
    start = end + 1;
  }
  let bytes = 1, at = start;
  while (bytes < column && at < programText.length) bytes += countUnitBytes(charCodeAt(programText, at++));
  return at - start + 1;
};

// Only the program writes to this object, so it is harmless if the program gets hold of it.
const makeLastValueHolder = (at, length) => {
  const object = create(null, { value: { __proto__: null, value: undefined, writable: true } });
  preventExtensions(object);
  lastValue = { __proto__: null, object, at, length, row: undefined, column: undefined };
  return object;
};
const locateLastValue = () => {
  if (isProgramAscii === undefined) normalizeProgramText();
  lastValue.row = 1;
  let start = 0;
  for (let end; (end = indexOf(programText, "\n", start)) >= 0 && end < lastValue.at; start = end + 1) lastValue.row++;
  lastValue.column = utf8Length(slice(programText, start, lastValue.at)) + (lastValue.row === 1 ? getPrefixBytes() : 0);
};
// An engine column without the text inserted before the last statement.
const removeInsertedColumns = (row, column) => {
  if (lastValue === undefined) return column;
  if (lastValue.row === undefined) locateLastValue();
  if (row !== lastValue.row || column <= lastValue.column) return column;
  return column > lastValue.column + lastValue.length ? column - lastValue.length : lastValue.column + 1;
};

// The position in the model's text of a program that was extracted from it. `given.places` are sorted rows of program
// line and column, source line and column; each applies from its position on. Without them positions are equal.
const toSourcePosition = (row, column) => {
  const rows = given.places;
  if (rows === undefined) return [row, column];
  let low = 0, high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1, at = rows[middle];
    if (at[0] < row || (at[0] === row && at[1] <= column)) low = middle + 1;
    else high = middle;
  }
  const found = rows[low === 0 ? 0 : low - 1];
  return [found[2], found[0] === row ? found[3] + column - found[1] : found[3]];
};

// An engine column as a column of the program's own text.
const toProgramColumn = (row, engineColumn) => {
  const column = removeInsertedColumns(row, engineColumn);
  // The engine reports code without a position of its own (`null.x`) at the start of the wrapper.
  if (row === 1) return toUtf16Column(row, column > getPrefixBytes() ? column - getPrefixBytes() : 1);
  return toUtf16Column(row, column);
};

// One stack line with positions in the program's source, or "" for a frame of the guest runtime.
const formatGuestFrame = (line) => {
  const mark = indexOf(line, "<input>:");
  if (mark < 0) return "";
  const second = indexOf(line, ":", mark + 8);
  if (second < 0) return "";
  const row = parseInteger(slice(line, mark + 8, second), 10);
  if (!(row < RUNTIME_FIRST_LINE)) return "";
  const savedPosition = findSavedPosition(row);
  if (savedPosition !== undefined) {
    const column = toSavedColumn(savedPosition[1], parseInteger(slice(line, second + 1), 10)), close = lastIndexOf(slice(line, 0, mark), "(") >= 0 ? ")" : "";
    return slice(line, 0, mark) + "saved/" + savedPosition[0] + ".js:" + savedPosition[1] + ":" + column + close;
  }
  const place = toSourcePosition(row, toProgramColumn(row, parseInteger(slice(line, second + 1), 10)));
  const head = slice(line, 0, mark);
  const tail = lastIndexOf(head, "(") >= 0 ? ")" : "";
  return head + "program.js:" + place[0] + ":" + place[1] + tail;
};

// Only the program's own frames: runtime and native frames do not help the model.
const formatGuestStack = (stack) => {
  let result = "", start = 0, mayBeJsonError = false;
  while (start < stack.length && result.length < MAX_STACK_LENGTH) {
    let end = indexOf(stack, "\n", start);
    if (end < 0) end = stack.length;
    const line = slice(stack, start, end);
    // A syntax error's first frame has no function. If JSON.parse threw it, its position is in the JSON text.
    if (mayBeJsonError && line === "    at parse (native)") result = "";
    mayBeJsonError = start === 0 && lastIndexOf(line, "(") < 0;
    const frame = formatGuestFrame(line);
    if (frame !== "") result = result === "" ? frame : result + "\n" + frame;
    start = end + 1;
  }
  return result;
};

// `error.details` as a member whose value is JSON text, clipped.
const toDetailsMember = (error) => {
  try {
    const details = error.details;
    const text = details === undefined ? undefined : toDisplayJson(details);
    return text === undefined ? "" : ',"details":' + stringify(clip(text, MAX_DETAILS_LENGTH));
  } catch {
    return "";
  }
};

// JSON text of anything that was thrown.
const errorToJson = (error, extraMembers) => {
  let name = "Error", message = "", stack = "", code = "", details = "";
  if (isObject(error)) {
    name = readSafely(error, "name", MAX_NAME_LENGTH) || "Error";
    message = readSafely(error, "message", MAX_MESSAGE_LENGTH);
    stack = readSafely(error, "stack", MAX_STACK_LENGTH * 4);
    code = readSafely(error, "code", MAX_NAME_LENGTH);
    details = toDetailsMember(error);
    message = isError(error) ? buildFullMessage(error, message) : formatThrownValue(error, message);
    if (message === "" && name === "Error") message = toSafeText(error, MAX_MESSAGE_LENGTH);
  } else {
    message = toSafeText(error, MAX_MESSAGE_LENGTH);
  }
  return '{"name":' + stringify(name) + ',"message":' + stringify(message) + ',"code":' + stringify(code) +
    ',"stack":' + stringify(indexOf(stack, "<input>:") < 0 ? stack : formatGuestStack(stack)) + details + extraMembers +
    (isModule() ? toClassMembers(error) : "") + "}";
};

// A surrogate counts as two bytes, half of the pair's four.
const countUnitBytes = (unit) => (unit <= 0x7f ? 1 : unit > 0x7ff && (unit < 0xd800 || unit > 0xdfff) ? 3 : 2);

// The longest prefix of at most `bytes` bytes in UTF-8, without splitting a surrogate pair.
const truncateUtf8 = (text, bytes) => {
  let end = 0;
  for (let left = bytes; end < text.length; end++) {
    left -= countUnitBytes(charCodeAt(text, end));
    if (left < 0) break;
  }
  if (end > 0 && end < text.length && (charCodeAt(text, end - 1) & 0xfc00) === 0xd800) end--;
  return slice(text, 0, end);
};

const NON_ASCII_PATTERN = /[^\x00-\x7f]/;
// Calls charCodeAt as a method: an uncurried call per character takes seconds for a text of some megabytes,
// and harden.js freezes String.prototype before guest code runs.
const utf8Length = (text) => {
  const first = matchIn(NON_ASCII_PATTERN, text);
  let bytes = text.length;
  for (let i = first === null ? bytes : first.index, end = bytes; i < end; i++) {
    const unit = text.charCodeAt(i);
    if (unit > 0x7f) bytes += countUnitBytes(unit) - 1;
  }
  return bytes;
};
