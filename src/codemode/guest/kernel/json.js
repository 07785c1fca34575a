// JSON that keeps integers exact. Beyond 2^53 a number cannot tell one integer from the next: there they are BigInts.

const { rawJSON } = G.JSON; // taken away from the guest later: it puts any text into JSON
const Big = G.BigInt;
const INTEGER = /^-?[0-9]+$/;
const LAST_EXACT = 9007199254740992; // 2^53
const TOO_LONG = 10n ** 1000n; // the host takes no more digits

const writeExactly = (_key, value) => {
  if (typeof value !== "bigint") return typeof value === "object" && isError(value) ? errorFields(value) : value;
  if (value >= TOO_LONG || value <= -TOO_LONG) throw new RangeErr("an integer of more than 1000 digits");
  return rawJSON(Str(value));
};

const bigIntIn = uncurry(Big.prototype.valueOf);
const writeBoxed = (key, value) => {
  let plain = value;
  try {
    if (isObject(value)) plain = bigIntIn(value);
  } catch {}
  return writeExactly(key, plain);
};

let ofBoxed; // what the engine says of a BigInt in an object
try {
  stringify(Obj(1n));
} catch (error) {
  ofBoxed = error.message;
}

// Whether an object is one that a BigInt was put into takes a try for each of them, so it is asked only where the engine
// found one.
const isOfBoxed = (error) => isObject(error) && error.message === ofBoxed;

// For everything that leaves; undefined for what is no JSON value.
const toJson = (value) => {
  try {
    return stringify(value, writeExactly);
  } catch (error) {
    if (!isOfBoxed(error)) throw error;
    return stringify(value, writeBoxed);
  }
};

const readExactly = (_key, value, context) => {
  if (typeof value !== "number" || (value < LAST_EXACT && value > -LAST_EXACT)) return value;
  const source = context.source;
  if (matchIn(INTEGER, source) === null) return value;
  const exact = Big(source);
  return exact === 9007199254740992n || exact === -9007199254740992n ? value : exact;
};

// For JSON that the host sent: nobody else has seen it yet, and it has neither accessors nor cycles.
const freezeJson = (value) => {
  const pending = [value];
  let count = 1;
  while (count > 0) {
    const object = pending[--count];
    if (!isObject(object)) continue;
    const keys = ownKeys(freeze(object));
    for (let i = 0; i < keys.length; i++) pending[count++] = object[keys[i]];
  }
  return value;
};
