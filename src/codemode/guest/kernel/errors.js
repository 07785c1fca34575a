// Errors as JSON and as text. An Error that leaves the guest in a value is its name, message, code and own fields, never
// its stack. What JSON.stringify makes of one for a program stays as it is.

const MAX_LEAN_DEPTH = 8, MAX_LEAN_ERRORS = 1000;
const MAX_REASONS = 8, MAX_REASON = 300, MAX_CAUSES = 4, MAX_FIELDS_TEXT = 2000;
const NOT_A_FIELD = freeze({ __proto__: null, name: true, message: true, code: true, stack: true });
const NO_ENUMERABLE = freeze({ __proto__: null, cause: true, errors: true }); // fields all the same

let errorsWritten = 0; // in the value that is being written
let isLean = false; // whether fields that cannot be written are left out of errors: a first attempt has failed

const readField = (error, key) => {
  try {
    return error[key];
  } catch {
    return undefined;
  }
};
const textField = (error, key) => {
  const value = readField(error, key);
  return typeof value === "string" ? value : value === undefined ? "" : safeText(value, MAX_MESSAGE);
};
const isField = (error, key) => {
  if (typeof key !== "string" || NOT_A_FIELD[key] === true) return false;
  return NO_ENUMERABLE[key] === true || getOwnPropertyDescriptor(error, key).enumerable;
};

// The error as data. A field that fails to be read costs no other one.
const errorFields = (error, open = []) => {
  const fields = create(null), code = readField(error, "code");
  errorsWritten++;
  fields.name = textField(error, "name") || "Error";
  fields.message = textField(error, "message");
  open[open.length] = error;
  if (code !== undefined) fields.code = isLean ? leanField(code, open) : code;
  const keys = isLean && errorsWritten > MAX_LEAN_ERRORS ? [] : ownKeys(error);
  for (let i = 0; i < keys.length; i++) {
    if (!isField(error, keys[i])) continue;
    const value = readField(error, keys[i]);
    fields[keys[i]] = isLean ? leanField(value, open) : value;
  }
  open.length--;
  return fields;
};

// Undefined for what cannot be written: a cycle, or what throws. `open` are the errors that it is a field of.
const leanField = (value, open) => {
  if (!isObject(value) || largeOf(value) !== undefined) return value;
  try {
    if (isError(value)) return open.length < MAX_LEAN_DEPTH && !isAmong(open, value) ? errorFields(value, open) : undefined;
    if (isArray(value) && hasErrors(value)) return leanItems(value, open);
    stringify(value, refuseErrors);
    return value;
  } catch {
    return undefined;
  }
};
const leanItems = (items, open) => {
  const written = [];
  for (let i = 0; i < items.length && i < MAX_LEAN_ERRORS; i++) written[i] = leanField(items[i], open);
  return written;
};
const isAmong = (items, value) => {
  for (let i = 0; i < items.length; i++) if (items[i] === value) return true;
  return false;
};
const hasErrors = (items) => {
  for (let i = 0; i < items.length && i < MAX_LEAN_ERRORS; i++) if (isError(items[i])) return true;
  return false;
};
const refuseErrors = (key, value) => {
  if (isError(value)) throw new TypeErr("an error in an error's field");
  return writeExactly(key, value);
};

// Writes a value; once more without the fields of its errors that cannot be written, where there are such.
const writeWithErrors = (write, value) => {
  const before = errorsWritten, wasLean = isLean;
  errorsWritten = 0;
  isLean = false;
  try {
    return write(value);
  } catch (error) {
    if (errorsWritten === 0 || saysNothing(error)) throw error;
    errorsWritten = 0;
    isLean = true;
    return write(value);
  } finally {
    errorsWritten = before;
    isLean = wasLean;
  }
};

// --- as text ---

// " {...}" with the fields of an error but for those left out; "" for none.
const IN_TEXT = freeze(["name", "message"]), TOLD_APART = freeze(["name", "message", "code", "details", "cause", "errors"]);
const fieldsText = (error, leftOut) => {
  try {
    const fields = errorFields(error);
    for (let i = 0; i < leftOut.length; i++) deleteProperty(fields, leftOut[i]);
    const text = ownKeys(fields).length === 0 ? "{}" : toShown(fields);
    return text === "{}" ? "" : " " + clip(text, MAX_FIELDS_TEXT);
  } catch {
    return "";
  }
};
const errorText = (error, max) => clip(safeText(error, max) + fieldsText(error, IN_TEXT), max);

// The JSON of what was thrown and is no Error; its text where it has none, or an empty one.
const valueText = (value, max) => {
  let json;
  try {
    if (typeof value === "object" && largeOf(value) === undefined) json = toShown(value);
    if (json !== undefined && json !== "{}") return clip(json, max);
  } catch {}
  const text = safeText(value, max);
  return json === "{}" && (text === "[object Object]" || text === "[unprintable]") ? json : text;
};
const reasonText = (reason) => (isError(reason) ? safeText(reason, MAX_REASON) : valueText(reason, MAX_REASON));

// ": a; b", the errors behind one that stands for several; "" for none.
const reasonsText = (errors) => {
  if (!isArray(errors) || errors.length === 0) return "";
  let text = "";
  for (let i = 0; i < errors.length && i < MAX_REASONS; i++) text += (i === 0 ? ": " : "; ") + reasonText(errors[i]);
  return errors.length > MAX_REASONS ? text + "; and " + (errors.length - MAX_REASONS) + " more" : text;
};
const causesText = (error) => {
  let text = "", at = error;
  for (let i = 0; i < MAX_CAUSES && isError(at); i++) {
    const cause = readField(at, "cause");
    if (cause === undefined || cause === null) break;
    text += " (cause: " + reasonText(cause) + ")";
    at = cause;
  }
  return text;
};
// What a thrown error says, with what is behind it: each that the message does not say itself.
const fullMessage = (error, message) => {
  if (weakGet(hostErrors, error) !== undefined) return message; // the host has its own
  let text = message;
  try {
    const reasons = reasonsText(readField(error, "errors")), causes = causesText(error), cause = readField(error, "cause");
    if (indexOf(text, slice(reasons, 2)) < 0) text += reasons;
    if (causes !== "" && !(isError(cause) && isSaid(text, textField(cause, "message")))) text += causes;
    if (!isModule() || classOf(error) === "") text += fieldsText(error, TOLD_APART); // those classes have theirs apart
  } catch {} // a proxy
  return clip(text, MAX_MESSAGE);
};
const isSaid = (text, part) => part !== "" && indexOf(text, part) >= 0;

// What no Error is: its own message where it has that and nothing else to say, else its JSON.
const KNOWN_KEYS = freeze({ __proto__: null, name: true, message: true, code: true, stack: true, details: true });
const thrownValueText = (value, message) => {
  try {
    const keys = ownKeys(value);
    let isPlain = message !== "";
    for (let i = 0; i < keys.length; i++) if (KNOWN_KEYS[keys[i]] !== true) isPlain = false;
    if (isPlain) return message;
  } catch {}
  return valueText(value, MAX_MESSAGE);
};

// The engine's own error of Promise.any has no message.
const nativeAny = NativePromise.any;
const nameReasons = (error) => {
  try {
    if (isError(error) && isArray(error.errors) && error.message === "")
      method(error, "message", "All promises were rejected" + reasonsText(error.errors));
  } catch {} // no memory
  throw error;
};
method(NativePromise, "any", {
  any(promises) {
    const found = apply(nativeAny, this, [promises]);
    return this === NativePromise ? then(found, undefined, nameReasons) : found;
  },
}.any);
