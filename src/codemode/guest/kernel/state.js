// What programs leave for those that come after them: requests of a kind of their own, which the host answers from
// wherever it keeps such things. Keys are text, and mean nothing here.

const stateRequest = (name, text) => {
  const limit = reachedLimit("state");
  return limit === undefined ? send("state", name, text, false) : refuse(limit);
};
const keyText = (name, key) => {
  requireRunning();
  if (typeof key !== "string") throw new TypeErr(name + ": the key must be a string, not " + kindOf(key));
  return stringify(key);
};

const guestState = freeze({
  get(key) { return stateRequest("state.get", "[" + keyText("state.get", key) + "]"); },
  set(key, value) {
    const name = "state.set", written = keyText(name, key), text = toSent(value); // runs guest code, so it comes first
    if (text === undefined)
      throw new TypeErr(name + ": the value must be a JSON value, not " + typeof value + "; delete(key) takes it away");
    return stateRequest(name, "[" + written + "," + text + "]");
  },
  delete(key) { return stateRequest("state.delete", "[" + keyText("state.delete", key) + "]"); },
  keys() {
    requireRunning();
    return stateRequest("state.keys", "[]");
  },
});
