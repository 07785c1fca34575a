// setTimeout and clearTimeout. Each timer is a request that the host answers when it is due, so that a replay fires the
// same ones in the same order. What a callback throws ends the program, as an uncaught exception does elsewhere.

const MAX_TIMERS = 1000, MAX_DELAY = 2147483647;
const timers = new NativeMap(); // id -> slot
let timersSet = 0;

// What is no number of milliseconds, or too many for a timer, is at once; so it is in browsers and in Node.
const delayOf = (delay) => {
  const ms = +delay;
  return ms >= 1 && ms <= MAX_DELAY ? floor(ms) : 0;
};
const TOO_MANY_TIMERS = "too many timers in this program";
const refuseTimer = () => {
  const stack = guestStack(new Err().stack), origin = limitOrigin("max_timers");
  if (isModule()) return moduleError(limitFields("max_timers", TOO_MANY_TIMERS, MAX_TIMERS), stack, origin);
  return hostError("CodeModeBridgeLimitError", TOO_MANY_TIMERS + " (at most " + MAX_TIMERS + ")", "CODE_MODE_BRIDGE_LIMIT", stack, origin);
};
const clearTimers = () => {
  mapClear(timers);
  timersSet = 0;
};

const guestSetTimeout = freeze({
  setTimeout(callback, delay = 0, ...args) {
    requireRunning();
    if (typeof callback !== "function")
      throw new TypeErr("setTimeout(callback, delay): the callback must be a function, not " + kindOf(callback));
    const ms = delayOf(delay); // may run guest code, which may set timers
    if (timersSet >= MAX_TIMERS) throw refuseTimer();
    const id = timersSet + 1, slot = {
      __proto__: null, id: nextId, kind: "timer", observed: true, delivered: false, due: clock + ms, callback, args,
      resolve: undefined, reject: undefined, site: undefined, isSet: false, isCleared: false,
    };
    mapSet(timers, id, slot);
    issue(slot, requestJson(slot.id, "timer", "setTimeout", "" + ms, ""));
    slot.isSet = true; // else it stands in the map alone, for want of memory, and the host knows nothing of it
    timersSet = id;
    return id;
  },
}.setTimeout);

const guestClearTimeout = freeze({
  clearTimeout(id = undefined) {
    const slot = mapGet(timers, typeof id === "string" ? +id : id);
    if (slot === undefined || !slot.isSet || slot.delivered || slot.callback === undefined || finished) return;
    emit("W", '{"id":' + slot.id + "}");
    slot.isCleared = true;
    unanswered--;
    slot.callback = slot.args = undefined;
  },
}.clearTimeout);

const fire = (slot) => {
  const callback = slot.callback, args = slot.args;
  slot.callback = slot.args = undefined;
  if (slot.due > clock) clock = slot.due;
  if (callback === undefined) return "ok"; // cleared while the host was answering
  try {
    apply(callback, undefined, args);
  } catch (error) {
    programThrew(error);
  }
  return "ok";
};
