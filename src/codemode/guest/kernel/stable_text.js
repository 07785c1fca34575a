// Deterministic console text: primitives as String() formats them, objects as JSON with sorted keys,
// a short placeholder for values without JSON.

const UNSERIALIZABLE_TEXT = "[Unserializable Object]";
const sortKeysReplacer = (key, value) => {
  if (!isObject(value) || isArray(value)) return writeExactly(key, value);
  const names = sort(ownKeys(value)), copy = create(null);
  for (let i = 0; i < names.length; i++) copy[names[i]] = value[names[i]];
  return copy;
};
// The JSON is parsed again before sorting: the copy has no accessors, cycles or methods.
const toStableJson = (value) => {
  const text = toDisplayJson(value);
  return text === undefined ? UNSERIALIZABLE_TEXT : stringify(parse(text, readExactly), sortKeysReplacer);
};
const formatFunction = (value) => {
  const name = readSafely(value, "name", MAX_NAME_LENGTH);
  return name === "" ? "[function]" : "[function " + name + "]";
};
const formatStableValue = (value) => {
  try {
    if (typeof value === "function") return formatFunction(value);
    if (!isObject(value)) return Str(value);
    return value instanceof Err && getErrorClass(value) === "" ? formatError(value, MAX_MESSAGE_LENGTH) : toStableJson(value);
  } catch {
    return UNSERIALIZABLE_TEXT;
  }
};

const MAX_STABLE_LENGTH = 65536;
const formatStableLine = (args) => {
  let line = "";
  for (let i = 0; i < args.length && line.length <= MAX_STABLE_LENGTH; i++)
    line = i === 0 ? formatStableValue(args[i]) : line + " " + formatStableValue(args[i]);
  return line;
};

// A line that does not fit is clipped to the remaining room and ends the output.
const writeStableLine = (level, line) => {
  const room = programSettings.max_console_bytes - consoleBytes - 1, bytes = utf8Length(line);
  if (++consoleLines > MAX_CONSOLE_LINES) return closeConsole("more than " + MAX_CONSOLE_LINES + " lines");
  if (bytes <= room && line.length <= MAX_STABLE_LENGTH) {
    consoleBytes += bytes + 1;
    return writeConsoleLine(level, line);
  }
  if (room > 0) writeConsoleLine(level, truncateUtf8(slice(line, 0, MAX_STABLE_LENGTH), room));
  closeConsole(bytes > room ? getLimitName("max_console_bytes") + " is " + programSettings.max_console_bytes : "a line of more than " + MAX_STABLE_LENGTH + " characters");
};
