// What a script tells the host's listeners: mcpLog and mcpNotify. Nothing answers, so each has an end of its own.

// Each notice costs the host a frame, and what stands in one is JSON that cannot be cut.
const MAX_NOTICES = 4096, MAX_NOTICE_JSON = 16000, MAX_NOTICE_DEPTH = 100;
let noticeBytes = 0, notices = 0;

// The host reads no JSON that nests without end. What it parses to here is ours, without getters or cycles.
const nestsDeeper = (text, depth) => {
  if (text.length <= 2 * depth) return false;
  let level = [parse(text)];
  for (let reached = 0; level.length > 0; reached++) {
    const next = [];
    for (let i = 0; i < level.length; i++) {
      if (!isObject(level[i])) continue;
      if (reached === depth) return true;
      const keys = enumerableKeys(level[i]);
      for (let j = 0; j < keys.length; j++) next[next.length] = level[i][keys[j]];
    }
    level = next;
  }
  return false;
};

const noticeJson = (place, value) => {
  if (value === undefined) return undefined;
  const text = writeWithErrors(toJson, value);
  if (text === undefined) throw new TypeErr(place + " must be a JSON value, not " + typeof value);
  if (text.length > MAX_NOTICE_JSON)
    throw new RangeErr(place + " is longer than " + MAX_NOTICE_JSON + " characters of JSON");
  if (nestsDeeper(text, MAX_NOTICE_DEPTH))
    throw new RangeErr(place + " nests deeper than " + MAX_NOTICE_DEPTH + " levels");
  return text;
};
const noticeName = (place, value) => {
  if (typeof value !== "string") throw new TypeErr(place + " must be a string, not " + kindOf(value));
  if (value.length > MAX_NAME) throw new RangeErr(place + " is longer than " + MAX_NAME + " characters");
  return stringify(value);
};

const tell = (caller, json) => {
  const bytes = noticeBytes + utf8Length(json);
  if (bytes > limits.max_console_bytes)
    throw new RangeErr(caller + ": max_console_bytes is " + limits.max_console_bytes + ", and this is over it");
  if (notices >= MAX_NOTICES) throw new RangeErr(caller + ": more than " + MAX_NOTICES + " messages in this program");
  emit("N", json);
  noticeBytes = bytes;
  notices++;
};

const guestMcpLog = freeze({
  mcpLog(level, message, metadata = undefined) {
    requireRunning();
    const name = noticeName("mcpLog(level, message, metadata): the level", level);
    const text = stringify(consoleText(message));
    const more = noticeJson("mcpLog(level, message, metadata): the metadata", metadata);
    tell("mcpLog", '{"kind":"log","level":' + name + ',"message":' + text + (more === undefined ? "" : ',"metadata":' + stringify(more)) + "}");
  },
}.mcpLog);

const guestMcpNotify = freeze({
  mcpNotify(event, payload = undefined) {
    requireRunning();
    const name = noticeName("mcpNotify(event, payload): the event", event);
    const more = noticeJson("mcpNotify(event, payload): the payload", payload);
    tell("mcpNotify", '{"kind":"notify","event":' + name + (more === undefined ? "" : ',"payload":' + stringify(more)) + "}");
  },
}.mcpNotify);
