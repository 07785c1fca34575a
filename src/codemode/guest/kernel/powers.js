// Takes away what a program must not have: code from strings, shared memory, clocks, collection order, stack hooks.

const refuseCode = (name, prototype) => {
  const refusal = {
    [name]: function () {
      throw new EvalErr("code generation from strings is disabled");
    },
  }[name];
  constant(refusal, "prototype", prototype);
  constant(prototype, "constructor", refusal);
  return refusal;
};

const AsyncFunctionPrototype = getPrototypeOf(async function () {});
const GeneratorFunctionPrototype = getPrototypeOf(function* () {});
const AsyncGeneratorFunctionPrototype = getPrototypeOf(async function* () {});
const RefusedFunction = refuseCode("Function", G.Function.prototype);
setPrototypeOf(refuseCode("AsyncFunction", AsyncFunctionPrototype), RefusedFunction);
setPrototypeOf(refuseCode("GeneratorFunction", GeneratorFunctionPrototype), RefusedFunction);
setPrototypeOf(refuseCode("AsyncGeneratorFunction", AsyncGeneratorFunctionPrototype), RefusedFunction);
constant(G, "Function", RefusedFunction);

for (const name of [
  "eval", "SharedArrayBuffer", "Atomics", "WeakRef", "FinalizationRegistry", "performance", "queueMicrotask",
  "DisposableStack", "AsyncDisposableStack", "DOMException", "gc", "scriptArgs", "print", "console", "std", "os",
  "bjson", "navigator",
]) deleteProperty(G, name);

// CallSite.getFunction() hands out closures, the kernel's among them.
for (const name of ["prepareStackTrace", "captureStackTrace", "stackTraceLimit"]) deleteProperty(Err, name);
// The one way to put raw text into JSON output.
for (const name of ["rawJSON", "isRawJSON"]) deleteProperty(G.JSON, name);

// A throwing callback must not surface as an engine exception: its rejection goes nowhere.
method(G, "queueMicrotask", {
  queueMicrotask(callback) {
    if (typeof callback !== "function") throw new TypeErr("queueMicrotask needs a function");
    then(new NativePromise((resolve) => resolve()), () => callback(), undefined);
  },
}.queueMicrotask);

// The engine gives what these call the global object for `this` (quickjs-ng 0.17.0), where the language gives nothing.
for (const Type of [Obj, NativeMap]) {
  const nativeGroupBy = Type.groupBy;
  method(Type, "groupBy", {
    groupBy(items, callback) {
      const call = typeof callback === "function" ? (item, index) => callback(item, index) : callback;
      return apply(nativeGroupBy, Type, [items, call]);
    },
  }.groupBy);
}

// Chained iterator helpers recurse natively past the engine's stack check (quickjs-ng 0.17.0: a crash at 26,000 links).
// flatMap's inner iterators, Iterator.concat and Iterator.zip are checked by the engine.
const MAX_ITERATOR_CHAIN = 1000;
const chainDepth = new NativeWeakMap();
const IteratorPrototype = G.Iterator.prototype;
for (const name of ["map", "filter", "take", "drop", "flatMap", "chunks", "windows"]) {
  const original = IteratorPrototype[name];
  method(IteratorPrototype, name, {
    [name](argument, option) {
      const depth = ((isObject(this) && weakGet(chainDepth, this)) || 0) + 1;
      if (depth > MAX_ITERATOR_CHAIN) throw new RangeErr("iterator helper chain too deep");
      const iterator = apply(original, this, [argument, option]);
      weakSet(chainDepth, iterator, depth);
      return iterator;
    },
  }[name]);
}

// Without memory for its record a bound function is freed half made, and the engine crashes (quickjs-ng 0.17.0). So more
// than bind() takes is allocated first and given back. Nothing of the guest's runs before the record exists.
const nativeBind = G.Function.prototype.bind;
const Reserve = G.ArrayBuffer;
method(G.Function.prototype, "bind", {
  bind(...args) {
    new Reserve(4096 + 32 * args.length);
    return apply(nativeBind, this, args);
  },
}.bind);
defineProperty(G.Function.prototype.bind, "length", { value: 1, configurable: true });
