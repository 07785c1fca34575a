// Notifications to the host's listeners: mcpLog and mcpNotify. They get no answer, so they have limits of their own.

// Each notice costs the host a frame, and its JSON cannot be clipped.
const MAX_NOTICES = 4096, MAX_NOTICE_LENGTH = 16000, MAX_NOTICE_DEPTH = 100;
let noticeBytes = 0, noticeCount = 0;

// The host bounds the depth of JSON. The value parsed here has no getters and no cycles.
const exceedsDepth = (text, depth) => {
  if (text.length <= 2 * depth) return false;
  let level = [parse(text)];
  for (let currentDepth = 0; level.length > 0; currentDepth++) {
    const next = [];
    for (let i = 0; i < level.length; i++) {
      if (!isObject(level[i])) continue;
      if (currentDepth === depth) return true;
      const keys = enumerableKeys(level[i]);
      for (let j = 0; j < keys.length; j++) next[next.length] = level[i][keys[j]];
    }
    level = next;
  }
  return false;
};

const toNoticeJson = (place, value) => {
  if (value === undefined) return undefined;
  const text = writeWithErrorRetry(toJson, value);
  if (text === undefined) throw new TypeErr(place + " must be a JSON value, not " + typeof value);
  if (text.length > MAX_NOTICE_LENGTH)
    throw new RangeErr(place + " is longer than " + MAX_NOTICE_LENGTH + " characters of JSON");
  if (exceedsDepth(text, MAX_NOTICE_DEPTH))
    throw new RangeErr(place + " nests deeper than " + MAX_NOTICE_DEPTH + " levels");
  return text;
};
const toNoticeName = (place, value) => {
  if (typeof value !== "string") throw new TypeErr(place + " must be a string, not " + getTypeName(value));
  if (value.length > MAX_NAME_LENGTH) throw new RangeErr(place + " is longer than " + MAX_NAME_LENGTH + " characters");
  return stringify(value);
};

const emitNotice = (caller, json) => {
  const bytes = noticeBytes + utf8Length(json);
  if (bytes > programSettings.max_console_bytes)
    throw new RangeErr(caller + ": max_console_bytes is " + programSettings.max_console_bytes + ", and this is over it");
  if (noticeCount >= MAX_NOTICES) throw new RangeErr(caller + ": more than " + MAX_NOTICES + " messages in this program");
  emit("N", json);
  noticeBytes = bytes;
  noticeCount++;
};

const guestMcpLog = freeze({
  mcpLog(level, message, metadata = undefined) {
    requireRunning();
    const name = toNoticeName("mcpLog(level, message, metadata): the level", level);
    const text = stringify(formatConsoleValue(message));
    const more = toNoticeJson("mcpLog(level, message, metadata): the metadata", metadata);
    emitNotice("mcpLog", '{"kind":"log","level":' + name + ',"message":' + text + (more === undefined ? "" : ',"metadata":' + stringify(more)) + "}");
  },
}.mcpLog);

const guestMcpNotify = freeze({
  mcpNotify(event, payload = undefined) {
    requireRunning();
    const name = toNoticeName("mcpNotify(event, payload): the event", event);
    const more = toNoticeJson("mcpNotify(event, payload): the payload", payload);
    emitNotice("mcpNotify", '{"kind":"notify","event":' + name + (more === undefined ? "" : ',"payload":' + stringify(more)) + "}");
  },
}.mcpNotify);
