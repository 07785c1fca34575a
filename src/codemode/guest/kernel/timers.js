// setTimeout and clearTimeout. Each timer is a request that the host answers when it is due, so that a replay fires the
// same ones in the same order. An error thrown by a callback ends the program, like an uncaught exception.

const MAX_TIMERS = 1000, MAX_DELAY_MS = 2147483647;
const timers = new NativeMap(); // id -> slot
let timerCount = 0;

// An invalid or too large delay is 0, as in browsers and Node.
const toDelayMs = (delay) => {
  const ms = +delay;
  return ms >= 1 && ms <= MAX_DELAY_MS ? floor(ms) : 0;
};
const TOO_MANY_TIMERS = "too many timers in this program";
const makeTimerLimitError = () => {
  const stack = formatGuestStack(new Err().stack), origin = encodeLimitOrigin("max_timers");
  if (isModule()) return makeModuleError(makeLimitFields("max_timers", TOO_MANY_TIMERS, MAX_TIMERS), stack, origin);
  return makeHostError("CodeModeBridgeLimitError", TOO_MANY_TIMERS + " (at most " + MAX_TIMERS + ")", "CODE_MODE_BRIDGE_LIMIT", stack, origin);
};
const clearTimers = () => {
  mapClear(timers);
  timerCount = 0;
};

const guestSetTimeout = freeze({
  setTimeout(callback, delay = 0, ...args) {
    requireRunning();
    if (typeof callback !== "function")
      throw new TypeErr("setTimeout(callback, delay): the callback must be a function, not " + getTypeName(callback));
    const ms = toDelayMs(delay); // may run guest code, which may set timers
    if (timerCount >= MAX_TIMERS) throw makeTimerLimitError();
    const id = timerCount + 1, slot = {
      __proto__: null, id: nextId, kind: "timer", observed: true, delivered: false, due: clock + ms, callback, args,
      resolve: undefined, reject: undefined, callStack: undefined, isSet: false, isCleared: false,
    };
    mapSet(timers, id, slot);
    enqueueRequest(slot, encodeRequest(slot.id, "timer", "setTimeout", "" + ms, ""));
    slot.isSet = true; // stays false if memory ran out: the host then does not know the timer
    timerCount = id;
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

const fireTimer = (slot) => {
  const callback = slot.callback, args = slot.args;
  slot.callback = slot.args = undefined;
  if (slot.due > clock) clock = slot.due;
  if (callback === undefined) return "ok"; // cleared while the host was answering
  try {
    apply(callback, undefined, args);
  } catch (error) {
    handleProgramError(error);
  }
  return "ok";
};
