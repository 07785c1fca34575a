// Console text that is the same for the same value: primitives as String() has them, objects as JSON with sorted keys,
// a short stand-in for what has no JSON.

const NO_TEXT = "[Unserializable Object]";
const sortedCopy = (key, value) => {
  if (!isObject(value) || isArray(value)) return writeExactly(key, value);
  const names = sort(ownKeys(value)), copy = create(null);
  for (let i = 0; i < names.length; i++) copy[names[i]] = value[names[i]];
  return copy;
};
// What is sorted is read back first: it has no accessors, cycles or methods any more.
const stableJson = (value) => {
  const text = toShown(value);
  return text === undefined ? NO_TEXT : stringify(parse(text, readExactly), sortedCopy);
};
const functionName = (value) => {
  const name = safeRead(value, "name", MAX_NAME);
  return name === "" ? "[function]" : "[function " + name + "]";
};
const stableText = (value) => {
  try {
    if (typeof value === "function") return functionName(value);
    if (!isObject(value)) return Str(value);
    return value instanceof Err && classOf(value) === "" ? errorText(value, MAX_MESSAGE) : stableJson(value);
  } catch {
    return NO_TEXT;
  }
};

const MAX_STABLE_LINE = 65536;
const stableLine = (args) => {
  let line = "";
  for (let i = 0; i < args.length && line.length <= MAX_STABLE_LINE; i++)
    line = i === 0 ? stableText(args[i]) : line + " " + stableText(args[i]);
  return line;
};

// A line that does not fit is cut to what does, and is then the last.
const writeStable = (level, line) => {
  const room = limits.max_console_bytes - consoleBytes - 1, bytes = utf8Length(line);
  if (++consoleLines > MAX_CONSOLE_LINES) return writeCut("more than " + MAX_CONSOLE_LINES + " lines");
  if (bytes <= room && line.length <= MAX_STABLE_LINE) {
    consoleBytes += bytes + 1;
    return writeLine(level, line);
  }
  if (room > 0) writeLine(level, beginningOf(slice(line, 0, MAX_STABLE_LINE), room));
  writeCut(bytes > room ? limitName("max_console_bytes") + " is " + limits.max_console_bytes : "a line of more than " + MAX_STABLE_LINE + " characters");
};
