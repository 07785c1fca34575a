// What a program can reach, walked from every root that it has. The test puts `plants` in front.
const roots = {
  globalThis,
  asynchronous: async () => {},
  generator: function* () {},
  asyncGenerator: async function* () {},
  iterator: [][Symbol.iterator](),
  mapIterator: new Map().entries(),
  matches: "a".matchAll(/a/g),
  symbol: Symbol.iterator,
  caught: (() => { try { null.x; } catch (error) { return error; } })(),
  strange: (() => { try { new Array(-1); } catch (error) { return error; } })(),
  pending: new Promise(() => {}),
  tools: typeof tools === "undefined" ? undefined : tools,
  tool: typeof tools === "undefined" ? undefined : tools.planted,
  says: typeof console === "undefined" ? undefined : console.log,
};
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
const attempt = (work) => { try { work(); } catch { failed++; } };
const plant = () => {
  const all = [];
  const count = walk((object) => all.push(object));
  for (const object of all) {
    attempt(() => { if (Reflect.defineProperty(object, "planted", { value: "planted", configurable: true })) planted++; });
    attempt(() => { Reflect.defineProperty(object, Symbol.for("planted"), { value: 1 }); });
    attempt(() => { object.toString = () => "planted"; });
    attempt(() => { object.then = (done) => done("planted"); });
    attempt(() => { object.constructor = null; });
  }
  attempt(() => { Error.stackTraceLimit = 1; });
  attempt(() => { Error.prepareStackTrace = () => "planted"; });
  attempt(() => { /(planted)/.exec("planted"); });
  attempt(() => { globalThis.left = new Uint8Array(1 << 20).fill(0x50); });
  attempt(() => { globalThis.held = new WeakRef({}); });
  attempt(() => { new FinalizationRegistry(() => { globalThis.finalised = true; }).register({}, "planted"); });
  attempt(() => { globalThis.loop = function* () { for (;;) yield "planted"; }(); globalThis.loop.next(); });
  attempt(() => { setTimeout(() => { globalThis.late = "planted"; }, 3600000); });
  attempt(() => { Promise.resolve().then(function again() { globalThis.job = "planted"; return Promise.resolve().then(again); }); });
  attempt(() => { new Promise(() => {}).then(() => { globalThis.never = "planted"; }); });
  attempt(() => { for (let at = 0; at < 2000; at++) globalThis["planted" + at] = Symbol("planted" + at); });
  attempt(() => { for (const name of ["Object", "Array", "Promise", "Map", "JSON", "Math", "Date", "Symbol"]) delete globalThis[name]; });
  return [count > 500, planted > 0];
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
  let depth = 0;
  const dive = () => { depth++; dive(); };
  attempt(dive);
  return {
    count, left, sum: found.reduce((sum, line) => hash(line, sum), 7), deep: Math.round(depth / 100),
    globals: Reflect.ownKeys(globalThis).map(String).length,
    numbers: [Math.random(), Math.random()], now: Date.now(),
    stack: [Error.stackTraceLimit ?? null, typeof Error.prepareStackTrace, new Error("here").stack.split("\n").length],
    regular: [RegExp.$1 ?? null, RegExp.lastMatch ?? null, /x/g.lastIndex],
    memory: new Uint8Array(1 << 20).every((byte) => byte === 0),
    names: [typeof late, typeof job, typeof never, typeof finalised, typeof left0, typeof held],
  };
};
