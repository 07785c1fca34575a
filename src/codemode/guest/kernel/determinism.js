// Date and Math.random give the same values in a replay: the host sets the seed once and the clock with every outcome.

let clock = 0;
const readClock = () => clock++;

// xorshift128+ on four 32-bit halves (high, low of each 64-bit word).
let seed = ""; // 32 hexadecimal digits until the first random number
let s0h = 0, s0l = 0, s1h = 0, s1l = 0;
const readSeedWord = (at) => parseInteger(slice(seed, at, at + 8), 16) | 0;
const seedRandom = () => {
  s0h = readSeedWord(0);
  s0l = readSeedWord(8);
  s1h = readSeedWord(16);
  s1l = readSeedWord(24);
  if ((s0h | s0l | s1h | s1l) === 0) s1l = 1; // the all-zero state never leaves itself
  seed = "";
};
const random = () => {
  if (seed !== "") seedRandom();
  let h = s0h, l = s0l;
  const yh = s1h, yl = s1l;
  const sumLow = (l >>> 0) + (yl >>> 0);
  const sumHigh = ((h >>> 0) + (yh >>> 0) + (sumLow > 0xffffffff ? 1 : 0)) >>> 0;
  s0h = yh;
  s0l = yl;
  h ^= (h << 23) | (l >>> 9); // x ^= x << 23
  l ^= l << 23;
  const rh = h >>> 18, rl = (l >>> 18) | (h << 14); // x ^= x >>> 18
  const qh = yh >>> 5, ql = (yl >>> 5) | (yh << 27); // x ^= y >>> 5
  s1h = h ^ rh ^ yh ^ qh;
  s1l = l ^ rl ^ yl ^ ql;
  return (sumHigh * 2097152 + ((sumLow >>> 0) >>> 11)) / 9007199254740992; // the upper 53 bits
};
defineHidden(G.Math, "random", { random() { return random(); } }.random);

const DatePrototype = NativeDate.prototype;
const GuestDate = function Date(...args) {
  if (new.target === undefined) return dateText(new NativeDate(readClock()));
  return construct(NativeDate, args.length === 0 ? [readClock()] : args, new.target);
};
defineProperty(GuestDate, "length", { value: 7, configurable: true });
defineConstant(GuestDate, "prototype", DatePrototype);
// sidecar.js recognises a conversion to a string by its stack frame: only JSON.parse may have a native frame named parse.
const parseDate = NativeDate.parse;
defineHidden(GuestDate, "parse", { parse(text) { return parseDate(typeof text === "symbol" ? "" + text : Str(text)); } }.parse);
defineHidden(GuestDate, "UTC", NativeDate.UTC);
defineHidden(GuestDate, "now", { now() { return readClock(); } }.now);
defineHidden(DatePrototype, "constructor", GuestDate);
defineHidden(G, "Date", GuestDate);
