// Errors as JSON and as text. An Error that crosses to the host as a value becomes its name, message, code and own
// fields, without its stack. What JSON.stringify makes of an error inside a program is unchanged.

const MAX_SANITIZED_DEPTH = 8, MAX_SANITIZED_ERRORS = 1000;
const MAX_REASONS = 8, MAX_REASON = 300, MAX_CAUSES = 4, MAX_FIELDS_TEXT = 2000;
const NON_FIELD_KEYS = freeze({ __proto__: null, name: true, message: true, code: true, stack: true });
const NON_ENUMERABLE_FIELDS = freeze({ __proto__: null, cause: true, errors: true }); // encoded although not enumerable

let errorsWritten = 0; // in the value that is being encoded
let isSanitizing = false; // whether to leave out error fields that cannot be encoded: the first attempt has failed

const tryReadField = (error, key) => {
  try {
    return error[key];
  } catch {
    return undefined;
  }
};
const readTextField = (error, key) => {
  const value = tryReadField(error, key);
  return typeof value === "string" ? value : value === undefined ? "" : toSafeText(value, MAX_MESSAGE_LENGTH);
};
const isErrorField = (error, key) => {
  if (typeof key !== "string" || NON_FIELD_KEYS[key] === true) return false;
  return NON_ENUMERABLE_FIELDS[key] === true || getOwnPropertyDescriptor(error, key).enumerable;
};

// The error as data. A field that cannot be read does not affect the others.
const collectErrorFields = (error, open = []) => {
  const fields = create(null), code = tryReadField(error, "code");
  errorsWritten++;
  fields.name = readTextField(error, "name") || "Error";
  fields.message = readTextField(error, "message");
  open[open.length] = error;
  if (code !== undefined) fields.code = isSanitizing ? sanitizeField(code, open) : code;
  const keys = isSanitizing && errorsWritten > MAX_SANITIZED_ERRORS ? [] : ownKeys(error);
  for (let i = 0; i < keys.length; i++) {
    if (!isErrorField(error, keys[i])) continue;
    const value = tryReadField(error, keys[i]);
    fields[keys[i]] = isSanitizing ? sanitizeField(value, open) : value;
  }
  open.length--;
  return fields;
};

// Undefined for a value that cannot be encoded: a cycle, or one that throws. `open`: the errors that enclose the value.
const sanitizeField = (value, open) => {
  if (!isObject(value) || getLargeString(value) !== undefined) return value;
  try {
    if (isError(value)) return open.length < MAX_SANITIZED_DEPTH && !isInArray(open, value) ? collectErrorFields(value, open) : undefined;
    if (isArray(value) && hasErrors(value)) return sanitizeItems(value, open);
    stringify(value, rejectNestedErrors);
    return value;
  } catch {
    return undefined;
  }
};
const sanitizeItems = (items, open) => {
  const written = [];
  for (let i = 0; i < items.length && i < MAX_SANITIZED_ERRORS; i++) written[i] = sanitizeField(items[i], open);
  return written;
};
const isInArray = (items, value) => {
  for (let i = 0; i < items.length; i++) if (items[i] === value) return true;
  return false;
};
const hasErrors = (items) => {
  for (let i = 0; i < items.length && i < MAX_SANITIZED_ERRORS; i++) if (isError(items[i])) return true;
  return false;
};
const rejectNestedErrors = (key, value) => {
  if (isError(value)) throw new TypeErr("an error in an error's field");
  return writeExactly(key, value);
};

// Encodes a value; on failure a second time without the error fields that cannot be encoded, if it has errors.
const writeWithErrorRetry = (write, value) => {
  const before = errorsWritten, wasSanitizing = isSanitizing;
  errorsWritten = 0;
  isSanitizing = false;
  try {
    return write(value);
  } catch (error) {
    if (errorsWritten === 0 || isNullOrUnset(error)) throw error;
    errorsWritten = 0;
    isSanitizing = true;
    return write(value);
  } finally {
    errorsWritten = before;
    isSanitizing = wasSanitizing;
  }
};

// --- as text ---

// " {...}" with the fields of an error except the excluded ones; "" without fields.
const NAME_AND_MESSAGE = freeze(["name", "message"]), SEPARATE_FIELDS = freeze(["name", "message", "code", "details", "cause", "errors"]);
const formatFields = (error, excludedKeys) => {
  try {
    const fields = collectErrorFields(error);
    for (let i = 0; i < excludedKeys.length; i++) deleteProperty(fields, excludedKeys[i]);
    const text = ownKeys(fields).length === 0 ? "{}" : toDisplayJson(fields);
    return text === "{}" ? "" : " " + clip(text, MAX_FIELDS_TEXT);
  } catch {
    return "";
  }
};
const formatError = (error, max) => clip(toSafeText(error, max) + formatFields(error, NAME_AND_MESSAGE), max);

// The JSON of a thrown value that is not an Error; its text where it has no JSON, or an empty object.
const formatNonError = (value, max) => {
  let json;
  try {
    if (typeof value === "object" && getLargeString(value) === undefined) json = toDisplayJson(value);
    if (json !== undefined && json !== "{}") return clip(json, max);
  } catch {}
  const text = toSafeText(value, max);
  return json === "{}" && (text === "[object Object]" || text === "[unprintable]") ? json : text;
};
const formatReason = (reason) => (isError(reason) ? toSafeText(reason, MAX_REASON) : formatNonError(reason, MAX_REASON));

// ": a; b", the errors inside an aggregate error; "" without any.
const formatReasons = (errors) => {
  if (!isArray(errors) || errors.length === 0) return "";
  let text = "";
  for (let i = 0; i < errors.length && i < MAX_REASONS; i++) text += (i === 0 ? ": " : "; ") + formatReason(errors[i]);
  return errors.length > MAX_REASONS ? text + "; and " + (errors.length - MAX_REASONS) + " more" : text;
};
const formatCauses = (error) => {
  let text = "", at = error;
  for (let i = 0; i < MAX_CAUSES && isError(at); i++) {
    const cause = tryReadField(at, "cause");
    if (cause === undefined || cause === null) break;
    text += " (cause: " + formatReason(cause) + ")";
    at = cause;
  }
  return text;
};
// The message of a thrown error with its reasons and causes, each unless the message contains it already.
const buildFullMessage = (error, message) => {
  if (weakGet(errorOrigins, error) !== undefined) return message; // the host already has the message
  let text = message;
  try {
    const reasons = formatReasons(tryReadField(error, "errors")), causes = formatCauses(error), cause = tryReadField(error, "cause");
    if (indexOf(text, slice(reasons, 2)) < 0) text += reasons;
    if (causes !== "" && !(isError(cause) && isMentioned(text, readTextField(cause, "message")))) text += causes;
    if (!isModule() || getErrorClass(error) === "") text += formatFields(error, SEPARATE_FIELDS); // those classes carry them separately
  } catch {} // a proxy
  return clip(text, MAX_MESSAGE_LENGTH);
};
const isMentioned = (text, part) => part !== "" && indexOf(text, part) >= 0;

// For a thrown value that is not an Error: its own message if it has no other data, else its JSON.
const ERROR_LIKE_KEYS = freeze({ __proto__: null, name: true, message: true, code: true, stack: true, details: true });
const formatThrownValue = (value, message) => {
  try {
    const keys = ownKeys(value);
    let isPlain = message !== "";
    for (let i = 0; i < keys.length; i++) if (ERROR_LIKE_KEYS[keys[i]] !== true) isPlain = false;
    if (isPlain) return message;
  } catch {}
  return formatNonError(value, MAX_MESSAGE_LENGTH);
};

// The engine's own error of Promise.any has no message.
const nativeAny = NativePromise.any;
const rethrowWithReasons = (error) => {
  try {
    if (isError(error) && isArray(error.errors) && error.message === "")
      defineHidden(error, "message", "All promises were rejected" + formatReasons(error.errors));
  } catch {} // no memory
  throw error;
};
defineHidden(NativePromise, "any", {
  any(promises) {
    const found = apply(nativeAny, this, [promises]);
    return this === NativePromise ? then(found, undefined, rethrowWithReasons) : found;
  },
}.any);
