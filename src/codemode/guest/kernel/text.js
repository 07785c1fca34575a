// Bounded text about values the guest controls. Every read may run guest code, so every read is fenced.

const MAX_NAME = 100, MAX_MESSAGE = 4000, MAX_STACK = 4000, MAX_DETAILS = 16000;
// Lines past this are the kernel's own: it is evaluated behind that many line breaks.
const KERNEL_LINE = 1048576;
// A program is the body of one of these functions: its first line stands behind the opening text. A module is no body.
const DIRECTIVES = freeze({ __proto__: null, sloppy: "", strict: '"use strict";' });
const wrapperOf = (kind, parameters) =>
  freeze({ __proto__: null, open: "(async function(" + parameters + "){" + DIRECTIVES[kind], close: "\n})" });
const MODULE = freeze({ __proto__: null, open: "", close: "" });
const WRAPPERS = freeze({
  __proto__: null, sloppy: wrapperOf("sloppy", ""), strict: wrapperOf("strict", ""), module: MODULE,
});
let wrapper = WRAPPERS.sloppy;
const isModule = () => wrapper === MODULE;
// What the first line of the program stands behind, in bytes.
const bytesBefore = () => (isModule() ? moduleGiven.prefix : wrapper.open.length);

const clip = (text, length) => (text.length > length ? slice(text, 0, length) + "\u2026" : text);

const safeText = (value, length) => {
  try {
    if (typeof value === "symbol") return "Symbol()";
    const large = largeOf(value);
    if (large !== undefined) return clip(largeText(large), length);
    return clip(typeof value === "string" ? value : Str(value), length);
  } catch {
    return "[unprintable]";
  }
};

const safeRead = (object, key, length) => {
  try {
    const value = object[key];
    return value === undefined ? "" : safeText(value, length);
  } catch {
    return "";
  }
};
const thrownText = (error) => (isObject(error) ? safeRead(error, "message", MAX_MESSAGE) : safeText(error, MAX_MESSAGE));
const kindOf = (value) => (value === null ? "null" : typeof value);

// The engine counts a column in bytes; everybody else counts UTF-16 units.
let programText = "", programIsAscii;
// What keeps the value of a program's last statement: {object, at, length}. Before that statement, at `at` in the
// program's own text, so many characters were put that are not its author's; `row` and `column` once somebody asks.
let lastValue;
const readProgramText = () => {
  if (isModule()) {
    programText = slice(programText, beginningOf(programText, moduleGiven.prefix).length);
    if (lastValue !== undefined) programText = slice(programText, 0, lastValue.at) + slice(programText, lastValue.at + lastValue.length);
  }
  programIsAscii = utf8Length(programText) === programText.length;
};
const unitColumn = (row, column) => {
  if (programIsAscii === undefined) readProgramText();
  if (programIsAscii) return column;
  let start = 0;
  for (let i = 1; i < row; i++) {
    const end = indexOf(programText, "\n", start);
    if (end < 0) return column;
    start = end + 1;
  }
  let bytes = 1, at = start;
  while (bytes < column && at < programText.length) bytes += unitBytes(charCodeAt(programText, at++));
  return at - start + 1;
};

// Only the program itself writes to it, so that it does no harm where one finds it.
const keepLastValue = (at, length) => {
  const object = create(null, { value: { __proto__: null, value: undefined, writable: true } });
  preventExtensions(object);
  lastValue = { __proto__: null, object, at, length, row: undefined, column: undefined };
  return object;
};
const placeLast = () => {
  if (programIsAscii === undefined) readProgramText();
  lastValue.row = 1;
  let start = 0;
  for (let end; (end = indexOf(programText, "\n", start)) >= 0 && end < lastValue.at; start = end + 1) lastValue.row++;
  lastValue.column = utf8Length(slice(programText, start, lastValue.at)) + (lastValue.row === 1 ? bytesBefore() : 0);
};
// A column of the engine's as it would be without what was put before the last statement.
const authorsColumn = (row, column) => {
  if (lastValue === undefined) return column;
  if (lastValue.row === undefined) placeLast();
  if (row !== lastValue.row || column <= lastValue.column) return column;
  return column > lastValue.column + lastValue.length ? column - lastValue.length : lastValue.column + 1;
};

// Where the model's text has a place of the program that was taken out of it: rows of four numbers, in order, hold from
// their line and column on. Without them it has it at the same place.
const placeInSource = (row, column) => {
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

// A column of the engine's as the model knows it.
const guestColumn = (row, engineColumn) => {
  const column = authorsColumn(row, engineColumn);
  // The engine places what has no position of its own (`null.x`) at the wrapper's opening.
  if (row === 1) return unitColumn(row, column > bytesBefore() ? column - bytesBefore() : 1);
  return unitColumn(row, column);
};

// One frame as the model knows its source, or "" for a frame of the kernel's.
const guestFrame = (line) => {
  const mark = indexOf(line, "<input>:");
  if (mark < 0) return "";
  const second = indexOf(line, ":", mark + 8);
  if (second < 0) return "";
  const row = parseInteger(slice(line, mark + 8, second), 10);
  if (!(row < KERNEL_LINE)) return "";
  const inSaved = savedPlace(row);
  if (inSaved !== undefined) {
    const column = savedColumn(inSaved[1], parseInteger(slice(line, second + 1), 10)), close = lastIndexOf(slice(line, 0, mark), "(") >= 0 ? ")" : "";
    return slice(line, 0, mark) + "saved/" + inSaved[0] + ".js:" + inSaved[1] + ":" + column + close;
  }
  const place = placeInSource(row, guestColumn(row, parseInteger(slice(line, second + 1), 10)));
  const head = slice(line, 0, mark);
  const tail = lastIndexOf(head, "(") >= 0 ? ")" : "";
  return head + "program.js:" + place[0] + ":" + place[1] + tail;
};

// Only the guest's own frames: kernel and native frames say nothing about the model's source.
const guestStack = (stack) => {
  let result = "", start = 0, mayBeJson = false;
  while (start < stack.length && result.length < MAX_STACK) {
    let end = indexOf(stack, "\n", start);
    if (end < 0) end = stack.length;
    const line = slice(stack, start, end);
    // A syntax error's first frame names no function. When JSON.parse threw it, it is a place in the JSON text.
    if (mayBeJson && line === "    at parse (native)") result = "";
    mayBeJson = start === 0 && lastIndexOf(line, "(") < 0;
    const frame = guestFrame(line);
    if (frame !== "") result = result === "" ? frame : result + "\n" + frame;
    start = end + 1;
  }
  return result;
};

// What a program puts beside an error for whoever reads it, as JSON text; cut when it is long.
const detailsOf = (error) => {
  try {
    const details = error.details;
    const text = details === undefined ? undefined : toShown(details);
    return text === undefined ? "" : ',"details":' + stringify(clip(text, MAX_DETAILS));
  } catch {
    return "";
  }
};

// A JSON text of an error, whatever was thrown.
const describeError = (error, extra) => {
  let name = "Error", message = "", stack = "", code = "", details = "";
  if (isObject(error)) {
    name = safeRead(error, "name", MAX_NAME) || "Error";
    message = safeRead(error, "message", MAX_MESSAGE);
    stack = safeRead(error, "stack", MAX_STACK * 4);
    code = safeRead(error, "code", MAX_NAME);
    details = detailsOf(error);
    message = isError(error) ? fullMessage(error, message) : thrownValueText(error, message);
    if (message === "" && name === "Error") message = safeText(error, MAX_MESSAGE);
  } else {
    message = safeText(error, MAX_MESSAGE);
  }
  return '{"name":' + stringify(name) + ',"message":' + stringify(message) + ',"code":' + stringify(code) +
    ',"stack":' + stringify(indexOf(stack, "<input>:") < 0 ? stack : guestStack(stack)) + details + extra +
    (isModule() ? classJson(error) : "") + "}";
};

// Half of a surrogate pair counts half of its four bytes.
const unitBytes = (unit) => (unit <= 0x7f ? 1 : unit > 0x7ff && (unit < 0xd800 || unit > 0xdfff) ? 3 : 2);

// As much of a text as is no longer than so many bytes in UTF-8; no pair is broken.
const beginningOf = (text, bytes) => {
  let end = 0;
  for (let left = bytes; end < text.length; end++) {
    left -= unitBytes(charCodeAt(text, end));
    if (left < 0) break;
  }
  if (end > 0 && end < text.length && (charCodeAt(text, end - 1) & 0xfc00) === 0xd800) end--;
  return slice(text, 0, end);
};

const NOT_ASCII = /[^\x00-\x7f]/;
// The one place that calls a method by name: an uncurried call per character took seconds for a text of some megabytes,
// and harden.js has frozen String.prototype by the time there is a guest.
const utf8Length = (text) => {
  const first = matchIn(NOT_ASCII, text);
  let bytes = text.length;
  for (let i = first === null ? bytes : first.index, end = bytes; i < end; i++) {
    const unit = text.charCodeAt(i);
    if (unit > 0x7f) bytes += unitBytes(unit) - 1;
  }
  return bytes;
};
