// Requests out of the sandbox. They gather in the outbox, one string in this closure; settle() delivers their outcomes.

let outbox = "", finished = false, nextId = 1, inFlight = 0, unanswered = 0, bridgeRequests = 0, catalogRequests = 0;
let catalogInFlight = 0; // catalog requests in flight
let programSettings; // the program's config from the host: max_result_bytes, max_tool_input_bytes and the others
const slots = new NativeMap(); // request id -> slot, for the whole program
const slotByPromise = new NativeWeakMap(); // the promise that the guest holds -> its slot
const errorOrigins = new NativeWeakMap(); // an error that the runtime made for the host -> JSON text that names its origin

const appendLine = (kind, json) => (outbox === "" ? kind + json : outbox + "\n" + kind + json);
const emit = (kind, json) => {
  outbox = appendLine(kind, json);
};

const makeHostError = (name, message, code, stack, origin) => {
  const error = new Err(message);
  defineHidden(error, "name", name);
  defineHidden(error, "code", code);
  defineHidden(error, "stack", stack);
  weakSet(errorOrigins, error, origin);
  return error;
};

// Adds the fields of an API's answer to the error of a call, which keeps its own code and message.
const addErrorFields = (error, fields) => {
  const keys = ownKeys(fields);
  for (let i = 0; i < keys.length; i++) {
    if (keys[i] === "code" || keys[i] === "message") continue;
    const value = freezeJson(fields[keys[i]]);
    defineProperty(error, keys[i], { __proto__: null, value, writable: true, enumerable: true, configurable: true });
  }
  return error;
};

const observe = (promise) => {
  const slot = weakGet(slotByPromise, promise);
  if (slot !== undefined) slot.observed = true;
};

// `await` skips `then` of a promise whose constructor is Promise; another constructor makes it call `then`.
// The species keeps finally() and subclasses working.
const observedThen = freeze({
  then(onValue, onError) {
    observe(this);
    return then(this, onValue, onError);
  },
}.then);
const bridgeConstructor = freeze({ __proto__: null, [Sym.species]: NativePromise });
const THEN_DESCRIPTOR = constantDescriptor(observedThen), CONSTRUCTOR_DESCRIPTOR = constantDescriptor(bridgeConstructor);
const makeBridgePromise = (slot) => {
  const promise = new NativePromise((resolve, reject) => {
    slot.resolve = resolve;
    slot.reject = reject;
  });
  defineProperty(promise, "then", THEN_DESCRIPTOR);
  defineProperty(promise, "constructor", CONSTRUCTOR_DESCRIPTOR);
  weakSet(slotByPromise, promise, slot);
  return promise;
};

const LIMIT_MESSAGES = freeze({
  __proto__: null,
  max_catalog_requests: "too many catalog requests",
  max_bridge_requests: "too many calls in this program",
  max_in_flight_bridge_requests: "too many calls at once: await some of them before making more",
});
const encodeLimitOrigin = (limit) => ',"limit":' + stringify(limit);
// The limit's name in the surface of the program.
const getLimitName = (limit) => {
  const own = programSettings.limit_names === undefined ? undefined : getOwnPropertyDescriptor(programSettings.limit_names, limit);
  return own === undefined ? limit : own.value;
};
const rejectWith = (error) => new NativePromise((_, reject) => reject(error));
const rejectOverLimit = (limit) => {
  const message = LIMIT_MESSAGES[limit] + " (" + getLimitName(limit) + " is " + programSettings[limit] + ")";
  const stack = formatGuestStack(new Err().stack);
  return rejectWith(makeHostError("CodeModeBridgeLimitError", message, "CODE_MODE_BRIDGE_LIMIT", stack, encodeLimitOrigin(limit)));
};

// Limits depend only on the order of requests and outcomes, so a replay rejects the same calls.
const findReachedLimit = (kind) => {
  if (kind === "catalog") return catalogRequests < programSettings.max_catalog_requests ? undefined : "max_catalog_requests";
  if (bridgeRequests >= programSettings.max_bridge_requests) return "max_bridge_requests";
  if (programSettings.in_flight_limit === "queue") return undefined; // the host starts them in order
  return inFlight < programSettings.max_in_flight_bridge_requests ? undefined : "max_in_flight_bridge_requests";
};

// An input as JSON text, or the problem with it. Runs guest code, so it precedes the limit check.
const NO_INPUT = freeze({ __proto__: null, text: undefined, problem: undefined });
const encodeInput = (input) => {
  if (input === undefined) return NO_INPUT;
  let text, problem;
  try {
    text = toHostJson(input);
    if (text === undefined) problem = "must be a JSON value, not " + typeof input;
  } catch (error) {
    if (isNullOrUnset(error)) throw error; // no memory
    problem = "is no JSON value: " + formatThrown(error);
  }
  return { __proto__: null, text, problem };
};
// The JSON text of a call's input; undefined for a call without an argument.
const encodeInputOrThrow = (name, args) => {
  if (args.length === 0) return undefined;
  const text = toHostJson(args[0]);
  if (text === undefined)
    throw new TypeErr("tools." + name + ": the input must be a JSON value, not " + typeof args[0]);
  return text;
};

const encodeRequest = (id, kind, name, text, place) => {
  const head = '{"id":' + id + ',"kind":"' + kind + '","name":' + stringify(name) + place;
  if (text === undefined) return head + "}";
  if (text.length > programSettings.max_tool_input_bytes) return head + ',"bytes":' + utf8Length(text) + "}";
  return head + ',"input":' + stringify(text) + "}";
};

const requireRunning = () => {
  if (finished) throw new Err("the program has already ended");
};

// Everything that can fail without stack or memory comes first: the guest may catch that error, and a partly issued
// request would leave runtime and host with different counts.
const enqueueRequest = (slot, json) => {
  const lines = appendLine("C", json);
  mapSet(slots, slot.id, slot);
  outbox = lines;
  nextId++;
  unanswered++;
};
const sendRequest = (kind, name, text, returnsErrors) => {
  if (kind === "tool" && isSavedCallByName(name)) return rejectWith(new TypeErr("a saved program is called as " + name + "(input)"));
  const id = nextId, isCatalog = kind === "catalog", callStack = new Err().stack;
  const slot = { __proto__: null, id, kind, returnsErrors, observed: false, delivered: false, callStack, resolve: undefined, reject: undefined };
  const promise = makeBridgePromise(slot);
  enqueueRequest(slot, encodeRequest(id, kind, name, text, programSettings.places === true && !isCatalog && kind !== "state" ? encodeCallPosition() : ""));
  if (isCatalog) {
    catalogRequests++;
    catalogInFlight++;
  } else {
    bridgeRequests++;
    inFlight++;
  }
  return promise;
};

const request = (kind, name, args) => {
  requireRunning();
  const text = encodeInputOrThrow(name, args); // runs guest code, so it precedes the limit check
  const limit = findReachedLimit(kind);
  return limit === undefined ? sendRequest(kind, name, text, false) : rejectOverLimit(limit);
};

const settle = (answer) => {
  const slot = mapGet(slots, answer.id);
  if (slot === undefined || slot.delivered) return "kernel-error: unknown request";
  const resolve = slot.resolve, reject = slot.reject, callStack = slot.callStack;
  slot.resolve = slot.reject = slot.callStack = undefined; // they hold the promise, and it holds the value, which the guest may drop
  slot.delivered = true;
  if (!slot.isCleared) unanswered--;
  if (answer.now > clock) clock = answer.now; // a program that reads the clock very often can be ahead of the host's clock
  if (slot.kind === "timer") return fireTimer(slot);
  if (slot.kind === "catalog") catalogInFlight--;
  else if (slot.kind !== "yield") inFlight--;
  if (hasRichValues && (slot.kind === "tool" || slot.kind === "state")) answer.value = decodeRichValue(answer.value);
  if (answer.error !== undefined) settleError(slot, answer.error, resolve, reject, callStack);
  else if (slot.returnsErrors) resolve({ success: true, data: answer.value === undefined ? null : answer.value });
  else resolve(slot.kind === "fetch" ? createResponse(answer.value) : answer.value);
  return "ok";
};

const settleError = (slot, error, resolve, reject, callStack) => {
  const { name, message, code, fields = { code, message } } = error, origin = ',"request":' + slot.id;
  if (slot.returnsErrors) resolve({ success: false, error: fields });
  else if (isModule()) reject(makeModuleError(fields, formatGuestStack(callStack), origin));
  else if (fields.toolName === undefined) reject(addErrorFields(makeHostError(name, message, code, formatGuestStack(callStack), origin), fields));
  else reject(makeCallError(fields, formatGuestStack(callStack), origin));
};

const listUnobservedIds = () => {
  let ids = "";
  mapForEach(slots, (slot) => {
    if (!slot.observed) ids = ids === "" ? "" + slot.id : ids + "," + slot.id;
  });
  return "[" + ids + "]";
};
