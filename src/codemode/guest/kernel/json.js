// JSON that keeps integers exact: beyond 2^53, where a number is inexact, they are BigInts.

const { rawJSON } = G.JSON; // removed from the guest in powers.js: it puts any text into JSON
const BigIntClass = G.BigInt;
const INTEGER_PATTERN = /^-?[0-9]+$/;
const MAX_EXACT_INTEGER = 9007199254740992; // 2^53
const BIGINT_LIMIT = 10n ** 1000n; // the host accepts 1,000 digits

const writeExactly = (_key, value) => {
  if (typeof value !== "bigint") return typeof value === "object" && isError(value) ? collectErrorFields(value) : value;
  if (value >= BIGINT_LIMIT || value <= -BIGINT_LIMIT) throw new RangeErr("an integer of more than 1000 digits");
  return rawJSON(Str(value));
};

const unboxBigInt = uncurry(BigIntClass.prototype.valueOf);
const writeBoxedBigInt = (key, value) => {
  let plain = value;
  try {
    if (isObject(value)) plain = unboxBigInt(value);
  } catch {}
  return writeExactly(key, plain);
};

let boxedBigIntMessage; // the engine's error message for a BigInt object (`Object(1n)`)
try {
  stringify(Obj(1n));
} catch (error) {
  boxedBigIntMessage = error.message;
}

// Detecting a BigInt object takes a try for each object, so it is done only after the engine has reported one
// by its error message.
const isBoxedBigIntError = (error) => isObject(error) && error.message === boxedBigIntMessage;

// JSON text with exact integers; undefined for what is not a JSON value.
const toJson = (value) => {
  try {
    return stringify(value, writeExactly);
  } catch (error) {
    if (!isBoxedBigIntError(error)) throw error;
    return stringify(value, writeBoxedBigInt);
  }
};

const readExactly = (_key, value, context) => {
  if (typeof value !== "number" || (value < MAX_EXACT_INTEGER && value > -MAX_EXACT_INTEGER)) return value;
  const source = context.source;
  if (matchIn(INTEGER_PATTERN, source) === null) return value;
  const exact = BigIntClass(source);
  return exact === 9007199254740992n || exact === -9007199254740992n ? value : exact;
};

// For parsed host JSON: no guest code has seen it yet, and it has neither accessors nor cycles.
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
