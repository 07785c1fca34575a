// Calls out of the sandbox. Requests gather in the outbox, one string in this closure; answers come in through settle().

let outbox = "", finished = false, nextId = 1, inFlight = 0, unanswered = 0, bridgeRequests = 0, catalogRequests = 0;
let questions = 0; // to the catalog, without an answer yet
let limits; // what the host sent with the program: max_result_bytes, max_tool_input_bytes and the others
const slots = new NativeMap(); // request id -> slot, for the whole run
const slotOf = new NativeWeakMap(); // the promise that the guest holds -> slot
const hostErrors = new NativeWeakMap(); // an error the kernel made for the host -> JSON text that names its origin

const withLine = (kind, json) => (outbox === "" ? kind + json : outbox + "\n" + kind + json);
const emit = (kind, json) => {
  outbox = withLine(kind, json);
};

const hostError = (name, message, code, stack, origin) => {
  const error = new Err(message);
  method(error, "name", name);
  method(error, "code", code);
  method(error, "stack", stack);
  weakSet(hostErrors, error, origin);
  return error;
};

// What an API has answered, as fields of the error of a call.
const withFields = (error, fields) => {
  const keys = ownKeys(fields);
  for (let i = 0; i < keys.length; i++) {
    if (keys[i] === "code" || keys[i] === "message") continue;
    const value = freezeJson(fields[keys[i]]);
    defineProperty(error, keys[i], { __proto__: null, value, writable: true, enumerable: true, configurable: true });
  }
  return error;
};

const observe = (promise) => {
  const slot = weakGet(slotOf, promise);
  if (slot !== undefined) slot.observed = true;
};

// `await` takes a promise whose constructor is Promise without looking at its `then`; another constructor makes it
// look. The species keeps finally() and subclasses working.
const observingThen = freeze({
  then(onValue, onError) {
    observe(this);
    return then(this, onValue, onError);
  },
}.then);
const bridgeConstructor = freeze({ __proto__: null, [Sym.species]: NativePromise });
const THEN = constantly(observingThen), CONSTRUCTOR = constantly(bridgeConstructor);
const bridgePromise = (slot) => {
  const promise = new NativePromise((resolve, reject) => {
    slot.resolve = resolve;
    slot.reject = reject;
  });
  defineProperty(promise, "then", THEN);
  defineProperty(promise, "constructor", CONSTRUCTOR);
  weakSet(slotOf, promise, slot);
  return promise;
};

const LIMIT_TEXTS = freeze({
  __proto__: null,
  max_catalog_requests: "too many catalog requests",
  max_bridge_requests: "too many calls in this program",
  max_in_flight_bridge_requests: "too many calls at once: await some of them before making more",
});
const limitOrigin = (limit) => ',"limit":' + stringify(limit);
// As the face of the program calls it.
const limitName = (limit) => {
  const own = limits.limit_names === undefined ? undefined : getOwnPropertyDescriptor(limits.limit_names, limit);
  return own === undefined ? limit : own.value;
};
const rejected = (error) => new NativePromise((_, reject) => reject(error));
const refuse = (limit) => {
  const message = LIMIT_TEXTS[limit] + " (" + limitName(limit) + " is " + limits[limit] + ")";
  const stack = guestStack(new Err().stack);
  return rejected(hostError("CodeModeBridgeLimitError", message, "CODE_MODE_BRIDGE_LIMIT", stack, limitOrigin(limit)));
};

// Limits depend on nothing but the order of calls and answers, so a replay refuses the same calls.
const reachedLimit = (kind) => {
  if (kind === "catalog") return catalogRequests < limits.max_catalog_requests ? undefined : "max_catalog_requests";
  if (bridgeRequests >= limits.max_bridge_requests) return "max_bridge_requests";
  if (limits.in_flight_limit === "queue") return undefined; // the host starts them in order
  return inFlight < limits.max_in_flight_bridge_requests ? undefined : "max_in_flight_bridge_requests";
};

// An input as JSON text, or what is wrong with it. Runs guest code, so it comes before the limits are looked at.
const NO_INPUT = freeze({ __proto__: null, text: undefined, problem: undefined });
const writtenInput = (input) => {
  if (input === undefined) return NO_INPUT;
  let text, problem;
  try {
    text = toSent(input);
    if (text === undefined) problem = "must be a JSON value, not " + typeof input;
  } catch (error) {
    if (saysNothing(error)) throw error; // no memory
    problem = "is no JSON value: " + thrownText(error);
  }
  return { __proto__: null, text, problem };
};
// The JSON text of a call's input; undefined for a call without an argument.
const inputText = (name, args) => {
  if (args.length === 0) return undefined;
  const text = toSent(args[0]);
  if (text === undefined)
    throw new TypeErr("tools." + name + ": the input must be a JSON value, not " + typeof args[0]);
  return text;
};

const requestJson = (id, kind, name, text, place) => {
  const head = '{"id":' + id + ',"kind":"' + kind + '","name":' + stringify(name) + place;
  if (text === undefined) return head + "}";
  if (text.length > limits.max_tool_input_bytes) return head + ',"bytes":' + utf8Length(text) + "}";
  return head + ',"input":' + stringify(text) + "}";
};

const requireRunning = () => {
  if (finished) throw new Err("the program has already ended");
};

// All that can fail for want of stack or memory comes first: the guest may catch that, and a request half made would
// put the counts of kernel and host apart.
const issue = (slot, json) => {
  const lines = withLine("C", json);
  mapSet(slots, slot.id, slot);
  outbox = lines;
  nextId++;
  unanswered++;
};
const send = (kind, name, text, isQuiet) => {
  if (kind === "tool" && isSavedByName(name)) return rejected(new TypeErr("a saved program is called as " + name + "(input)"));
  const id = nextId, isCatalog = kind === "catalog", site = new Err().stack;
  const slot = { __proto__: null, id, kind, isQuiet, observed: false, delivered: false, site, resolve: undefined, reject: undefined };
  const promise = bridgePromise(slot);
  issue(slot, requestJson(id, kind, name, text, limits.places === true && !isCatalog && kind !== "state" ? placeMembers() : ""));
  if (isCatalog) {
    catalogRequests++;
    questions++;
  } else {
    bridgeRequests++;
    inFlight++;
  }
  return promise;
};

const request = (kind, name, args) => {
  requireRunning();
  const text = inputText(name, args); // runs guest code, so it comes before the limits are looked at
  const limit = reachedLimit(kind);
  return limit === undefined ? send(kind, name, text, false) : refuse(limit);
};

const settle = (answer) => {
  const slot = mapGet(slots, answer.id);
  if (slot === undefined || slot.delivered) return "kernel-error: unknown request";
  const resolve = slot.resolve, reject = slot.reject, site = slot.site;
  slot.resolve = slot.reject = slot.site = undefined; // they hold the promise, and it the value that the guest may drop
  slot.delivered = true;
  if (!slot.isCleared) unanswered--;
  if (answer.now > clock) clock = answer.now; // a program that reads the clock very often is ahead of the host's
  if (slot.kind === "timer") return fire(slot);
  if (slot.kind === "catalog") questions--;
  else if (slot.kind !== "yield") inFlight--;
  if (isRich && (slot.kind === "tool" || slot.kind === "state")) answer.value = revived(answer.value);
  if (answer.error !== undefined) settleError(slot, answer.error, resolve, reject, site);
  else if (slot.isQuiet) resolve({ success: true, data: answer.value === undefined ? null : answer.value });
  else resolve(slot.kind === "fetch" ? makeResponse(answer.value) : answer.value);
  return "ok";
};

const settleError = (slot, error, resolve, reject, site) => {
  const { name, message, code, fields = { code, message } } = error, origin = ',"request":' + slot.id;
  if (slot.isQuiet) resolve({ success: false, error: fields });
  else if (isModule()) reject(moduleError(fields, guestStack(site), origin));
  else if (fields.toolName === undefined) reject(withFields(hostError(name, message, code, guestStack(site), origin), fields));
  else reject(callError(fields, guestStack(site), origin));
};

const unobservedIds = () => {
  let ids = "";
  mapForEach(slots, (slot) => {
    if (!slot.observed) ids = ids === "" ? "" + slot.id : ids + "," + slot.id;
  });
  return "[" + ids + "]";
};
