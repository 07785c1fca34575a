// What a program can reach, walked from every root that it has: `plant()` leaves something in each place, and `look()`
// tells what is there.
const evaluate = (text) => { try { return (0, globalThis.eval)(text); } catch { return undefined; } };
const roots = {
  globalThis,
  asynchronous: async () => {},
  generator: function* () {},
  asyncGenerator: async function* () {},
  iterator: [][Symbol.iterator](),
  mapIterator: new Map().entries(),
  setIterator: new Set().values(),
  textIterator: ""[Symbol.iterator](),
  matches: "a".matchAll(/a/g),
  match: /(?<a>a)/d.exec("a"),
  mapped: globalThis.Iterator?.from([]).map?.((one) => one),
  wrapped: globalThis.Iterator?.from({ next() { return { done: true }; } }),
  template: ((strings) => strings)`a${1}b`,
  thrower: (function () { "use strict"; return Reflect.getOwnPropertyDescriptor(arguments, "callee")?.get; })(),
  evaluated: evaluate("(function () { return [this, arguments]; })()"),
  symbol: Symbol.iterator,
  caught: (() => { try { null.x; } catch (error) { return error; } })(),
  strange: (() => { try { new Array(-1); } catch (error) { return error; } })(),
  pending: new Promise(() => {}),
  tools: typeof tools === "undefined" ? undefined : tools,
  tool: typeof tools === "undefined" ? undefined : tools.planted,
  call: typeof tools === "undefined" ? undefined : tools.planted({ n: 1 }),
  imported: typeof imported === "undefined" ? undefined : imported,
  timer: typeof setTimeout === "undefined" ? undefined : setTimeout,
  says: typeof console === "undefined" ? undefined : console.log,
};
roots.answer = await roots.call;
const isObject = (value) => (typeof value === "object" && value !== null) || typeof value === "function";
const walk = (visit) => {
  const seen = new Map(), queue = [];
  const add = (value, path) => {
    if (!isObject(value) || seen.has(value)) return;
    seen.set(value, path);
    queue.push([value, path]);
  };
  for (const name of Object.keys(roots)) add(roots[name], name);
  const ours = new Set([roots, seen, queue]);
  for (let at = 0; at < queue.length; at++) {
    const [object, path] = queue[at];
    if (ours.has(object)) continue;
    visit(object, path);
    add(Reflect.getPrototypeOf(object), path + ".__proto__");
    for (const key of Reflect.ownKeys(object)) {
      const found = Reflect.getOwnPropertyDescriptor(object, key);
      if (found === undefined) continue;
      const name = path + "." + String(key);
      add(found.value, name);
      add(found.get, name + "<get>");
      add(found.set, name + "<set>");
    }
  }
  return seen.size;
};

let failed = 0, planted = 0;
const attempt = (work) => { try { return work(); } catch { failed++; return null; } };
let depth = 0;
const dive = () => { depth++; dive(); };
// Sizes from a few bytes to more than the allocator gives back at once.
const SIZES = [8, 24, 40, 64, 100, 200, 500, 1000, 3000, 9000, 40000, 140000, 1 << 20];
const grown = (size) => [
  () => new ArrayBuffer(size),
  () => new ArrayBuffer(8).transfer(size),
  () => new ArrayBuffer(8, { maxByteLength: size }).transfer(size),
  () => { const one = new ArrayBuffer(1, { maxByteLength: size }); one.resize(size); return one; },
  () => { const one = new ArrayBuffer(size, { maxByteLength: 2 * size }); one.resize(1); one.resize(2 * size); return one; },
  () => { const one = new SharedArrayBuffer(1, { maxByteLength: size }); one.grow(size); return one; },
  () => new SharedArrayBuffer(size),
  () => new Float64Array(size >> 3).buffer,
  () => new Uint8Array({ length: size }).buffer,
];
const everywhere = (visit) => SIZES.flatMap((size) => grown(size).map((make) => attempt(() => visit(make()))));
const plant = () => {
  attempt(() => { evaluate("var plantedVar = 1; let plantedLet = 2; const plantedConst = 3; class PlantedClass {} function plantedFunction() {}"); });
  attempt(() => { import("planted").catch(() => {}); });
  attempt(() => { Error.stackTraceLimit = 1; });
  attempt(() => { Error.prepareStackTrace = () => "planted"; });
  attempt(() => { /(planted)/.exec("planted"); });
  attempt(() => { everywhere((buffer) => new Uint8Array(buffer).fill(0x50)); });
  attempt(() => { for (let at = 0; at < 300; at++) for (const size of SIZES.slice(0, 9)) new Uint8Array(size).fill(0x50); });
  attempt(() => { const hoard = []; for (;;) hoard.push(new ArrayBuffer(1 << 20)); });
  attempt(() => { const hoard = []; for (;;) hoard.push("planted".repeat(1 << 20) + hoard.length); });
  attempt(dive);
  attempt(() => { new Uint8Array(globalThis.left = new ArrayBuffer(1 << 20)).fill(0x50); });
  attempt(() => { globalThis.held = new WeakRef({}); });
  attempt(() => { new FinalizationRegistry(() => { globalThis.finalised = true; }).register({}, "planted"); });
  attempt(() => { globalThis.loop = function* () { for (;;) yield "planted"; }(); globalThis.loop.next(); });
  attempt(() => { (async function* () { try { yield await new Promise(() => {}); } finally { globalThis.closed = "planted"; } })().next(); });
  attempt(() => { setTimeout(() => { globalThis.late = "planted"; }, 3600000); });
  attempt(() => { Promise.resolve().then(function again() { globalThis.job = "planted"; return Promise.resolve().then(again); }); });
  attempt(() => { new Promise(() => {}).then(() => { globalThis.never = "planted"; }); });
  attempt(() => { Promise.reject(new Error("planted")); });
  attempt(() => {
    const words = new Int32Array(new SharedArrayBuffer(8));
    Atomics.waitAsync(words, 0, 0).value.then(() => { globalThis.woken = "planted"; });
  });
  attempt(() => { Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0, 1); });
  attempt(() => { for (let at = 0; at < 100; at++) Math.random(); });
  attempt(() => { console.group("planted"); });
  attempt(() => { console.count("planted"); });
  attempt(() => { console.time("planted"); });
  attempt(() => { for (let at = 0; at < 300; at++) console.log("planted".repeat(100)); });
  attempt(() => { for (let at = 0; at < 2000; at++) globalThis["planted" + at] = Symbol("planted" + at); });
  return plantInAll();
};
// Last, and with nothing that is looked up in a place where something was planted already.
const plantInAll = () => {
  const all = [], { defineProperty, deleteProperty, ownKeys, setPrototypeOf, preventExtensions } = Reflect;
  const count = walk((object) => { all[all.length] = object; });
  const key = Symbol.for("planted"), primitive = Symbol.toPrimitive, iterator = Symbol.iterator, says = () => "planted";
  const trap = new Proxy({}, { get: says, has: () => true, getPrototypeOf: () => null });
  const names = ["Object", "Array", "Promise", "Map", "JSON", "Math", "Date", "Symbol", "Proxy", "Reflect"];
  const define = (object, name, value) => defineProperty(object, name, { value, writable: true, configurable: true });
  for (let at = 0; at < count; at++) attempt(() => { if (define(all[at], "planted", "planted")) planted++; });
  for (let at = 0; at < count; at++) {
    const object = all[at];
    if (object === all || object === trap) continue;
    attempt(() => { define(object, key, 1); });
    attempt(() => { object.then = (done) => done("planted"); });
    attempt(() => { object.constructor = null; });
    attempt(() => { object.toString = object.valueOf = object.toJSON = object[primitive] = says; });
    attempt(() => { object[iterator] = object.next = says; });
    attempt(() => { defineProperty(object, "0", { get: says, set: says, configurable: true }); });
    attempt(() => {
      const own = ownKeys(object);
      for (let one = 0; one < own.length; one++) if (typeof object[own[one]] === "function") object[own[one]] = says;
    });
  }
  for (let at = 0; at < names.length; at++) deleteProperty(globalThis, names[at]);
  for (let at = 0; at < count; at++) {
    attempt(() => { setPrototypeOf(all[at], trap); });
    attempt(() => { preventExtensions(all[at]); });
  }
  return [count > 500, planted > 20];
};

const hash = (text, before) => {
  let sum = before;
  for (let at = 0; at < text.length; at++) sum = (Math.imul(sum, 31) + text.charCodeAt(at)) | 0;
  return sum;
};
const look = () => {
  const found = [], left = [];
  const keys = (object) => Reflect.ownKeys(object).map((key) => {
    const one = Reflect.getOwnPropertyDescriptor(object, key);
    return String(key) + ":" + typeof one?.value + one?.writable + one?.enumerable + one?.configurable;
  });
  const count = walk((object, path) => {
    const line = path + " " + typeof object + Object.isExtensible(object) + " " + keys(object).join();
    found.push(line);
    if (line.includes("planted") && !path.startsWith("tool")) left.push(line.slice(0, 200));
  });
  attempt(dive);
  const hoard = [];
  attempt(() => { for (;;) hoard.push(new ArrayBuffer(1 << 20)); });
  const room = hoard.length;
  hoard.length = 0;
  attempt(() => { for (let at = 0; at < 300; at++) console.log("look".repeat(100)); });
  return {
    count, left, sum: found.reduce((sum, line) => hash(line, sum), 7), deep: Math.round(depth / 100),
    globals: Reflect.ownKeys(globalThis).map(String).length,
    numbers: [Math.random(), Math.random()], now: Date.now(),
    stack: [Error.stackTraceLimit ?? null, typeof Error.prepareStackTrace, new Error("here").stack.split("\n").length],
    regular: [RegExp.$1 ?? null, RegExp.lastMatch ?? null, /x/g.lastIndex],
    zone: [new Date(0).getTimezoneOffset(), new Date(0).toString(), (1.5).toLocaleString()],
    memory: everywhere((buffer) => !new Uint8Array(buffer).includes(0x50) && new Uint8Array(buffer, 0, 8).join() === "0,0,0,0,0,0,0,0"),
    words: attempt(() => Atomics.notify(new Int32Array(new SharedArrayBuffer(8)), 0)), room,
    names: [
      typeof late, typeof job, typeof never, typeof finalised, typeof planted0, typeof held, typeof woken, typeof closed,
      typeof plantedVar, typeof plantedLet, typeof plantedConst, typeof PlantedClass, typeof plantedFunction,
    ],
  };
};
