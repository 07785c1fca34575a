// Removes what a program must not have: code from strings, shared memory, clocks, garbage collection order, stack hooks.

const disableConstructor = (name, prototype) => {
  const refusal = {
    [name]: function () {
      throw new EvalErr("code generation from strings is disabled");
    },
  }[name];
  defineConstant(refusal, "prototype", prototype);
  defineConstant(prototype, "constructor", refusal);
  return refusal;
};

const AsyncFunctionPrototype = getPrototypeOf(async function () {});
const GeneratorFunctionPrototype = getPrototypeOf(function* () {});
const AsyncGeneratorFunctionPrototype = getPrototypeOf(async function* () {});
const DisabledFunction = disableConstructor("Function", G.Function.prototype);
setPrototypeOf(disableConstructor("AsyncFunction", AsyncFunctionPrototype), DisabledFunction);
setPrototypeOf(disableConstructor("GeneratorFunction", GeneratorFunctionPrototype), DisabledFunction);
setPrototypeOf(disableConstructor("AsyncGeneratorFunction", AsyncGeneratorFunctionPrototype), DisabledFunction);
defineConstant(G, "Function", DisabledFunction);

for (const name of [
  "eval", "SharedArrayBuffer", "Atomics", "WeakRef", "FinalizationRegistry", "performance", "queueMicrotask",
  "DisposableStack", "AsyncDisposableStack", "DOMException", "gc", "scriptArgs", "print", "console", "std", "os",
  "bjson", "navigator",
]) deleteProperty(G, name);

// CallSite.getFunction() returns closures, including those of the guest runtime.
for (const name of ["prepareStackTrace", "captureStackTrace", "stackTraceLimit"]) deleteProperty(Err, name);
// The one way to put raw text into JSON output.
for (const name of ["rawJSON", "isRawJSON"]) deleteProperty(G.JSON, name);

// An exception in the callback must not surface as an engine exception: its rejection is ignored.
defineHidden(G, "queueMicrotask", {
  queueMicrotask(callback) {
    if (typeof callback !== "function") throw new TypeErr("queueMicrotask needs a function");
    then(new NativePromise((resolve) => resolve()), () => callback(), undefined);
  },
}.queueMicrotask);

// The engine passes the global object as `this` to these callbacks (quickjs-ng 0.17.0); the language specifies undefined.
for (const Type of [Obj, NativeMap]) {
  const nativeGroupBy = Type.groupBy;
  defineHidden(Type, "groupBy", {
    groupBy(items, callback) {
      const call = typeof callback === "function" ? (item, index) => callback(item, index) : callback;
      return apply(nativeGroupBy, Type, [items, call]);
    },
  }.groupBy);
}

// Chained iterator helpers recurse natively past the engine's stack check (quickjs-ng 0.17.0: a crash at 26,000 links).
// flatMap's inner iterators, Iterator.concat and Iterator.zip are checked by the engine.
const MAX_ITERATOR_CHAIN = 1000;
const chainDepths = new NativeWeakMap();
const IteratorPrototype = G.Iterator.prototype;
for (const name of ["map", "filter", "take", "drop", "flatMap", "chunks", "windows"]) {
  const original = IteratorPrototype[name];
  defineHidden(IteratorPrototype, name, {
    [name](argument, option) {
      const depth = ((isObject(this) && weakGet(chainDepths, this)) || 0) + 1;
      if (depth > MAX_ITERATOR_CHAIN) throw new RangeErr("iterator helper chain too deep");
      const iterator = apply(original, this, [argument, option]);
      weakSet(chainDepths, iterator, depth);
      return iterator;
    },
  }[name]);
}

// Without memory for its record a bound function is freed while half initialised, and the engine crashes (quickjs-ng 0.17.0).
// So more than bind() needs is allocated first and released. No guest code runs before the record exists.
const nativeBind = G.Function.prototype.bind;
const MemoryReserve = G.ArrayBuffer;
defineHidden(G.Function.prototype, "bind", {
  bind(...args) {
    new MemoryReserve(4096 + 32 * args.length);
    return apply(nativeBind, this, args);
  },
}.bind);
defineProperty(G.Function.prototype.bind, "length", { value: 1, configurable: true });
