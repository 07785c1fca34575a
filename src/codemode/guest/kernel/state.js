// The global `state`: data for later programs. Each access is a "state" request, which the host answers
// from its storage. Keys are opaque strings.

const requestState = (name, text) => {
  const limit = findReachedLimit("state");
  return limit === undefined ? sendRequest("state", name, text, false) : rejectOverLimit(limit);
};
const toKeyJson = (name, key) => {
  requireRunning();
  if (typeof key !== "string") throw new TypeErr(name + ": the key must be a string, not " + getTypeName(key));
  return stringify(key);
};

const guestState = freeze({
  get(key) { return requestState("state.get", "[" + toKeyJson("state.get", key) + "]"); },
  set(key, value) {
    const name = "state.set", written = toKeyJson(name, key), text = toHostJson(value); // runs guest code, so it comes first
    if (text === undefined)
      throw new TypeErr(name + ": the value must be a JSON value, not " + typeof value + "; delete(key) takes it away");
    return requestState(name, "[" + written + "," + text + "]");
  },
  delete(key) { return requestState("state.delete", "[" + toKeyJson("state.delete", key) + "]"); },
  keys() {
    requireRunning();
    return requestState("state.keys", "[]");
  },
});
