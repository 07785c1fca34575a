// Freezes every intrinsic that the guest can reach, so that no program can change what other code relies on.

const pendingObjects = [];
const seenObjects = new NativeWeakMap();
let pendingCount = 0;
const visit = (value) => {
  if (!isObject(value) || value === G || weakGet(seenObjects, value)) return;
  weakSet(seenObjects, value, true);
  pendingObjects[pendingCount++] = value;
};

const visitProperties = (object) => {
  const keys = ownKeys(object);
  for (let i = 0; i < keys.length; i++) {
    const descriptor = getOwnPropertyDescriptor(object, keys[i]);
    visit(descriptor.value);
    visit(descriptor.get);
    visit(descriptor.set);
  }
};

// A frozen prototype would forbid `error.message = ...` on every object below it (the override mistake). An accessor
// in place of the data property allows it.
const allowOverride = (object, keys) => {
  for (const key of keys) {
    const { value, enumerable } = getOwnPropertyDescriptor(object, key);
    visit(value);
    defineProperty(object, key, {
      get() { return value; },
      set(replacement) {
        if (!isObject(this) || this === object) throw new TypeErr("cannot assign to a frozen intrinsic");
        defineProperty(this, key, { value: replacement, writable: true, enumerable: true, configurable: true });
      },
      enumerable,
      configurable: false,
    });
  }
};
allowOverride(Obj.prototype, ["constructor", "toString", "valueOf", "toLocaleString", "hasOwnProperty"]);
allowOverride(Arr.prototype, ["constructor", "toString"]);
allowOverride(Err.prototype, ["constructor", "toString", "name", "message"]);
allowOverride(G.Function.prototype, ["toString"]);
allowOverride(NativePromise.prototype, ["constructor"]);
allowOverride(DatePrototype, ["constructor"]);
for (const name of ownKeys(ERROR_CLASSES)) allowOverride(ERROR_CLASSES[name].prototype, ["constructor", "name"]);
for (const Type of [TypeErr, RangeErr, SyntaxErr, EvalErr, G.ReferenceError, G.URIError, G.AggregateError, G.InternalError])
  allowOverride(Type.prototype, ["constructor", "name", "message"]);
allowOverride(EngineErrorPrototype, ["constructor", "name", "message"]);

visitProperties(G);
visit(getPrototypeOf(G));
// Intrinsics that no global refers to.
const arrayIterator = [][Sym.iterator]();
for (const value of [
  EngineErrorPrototype, getPrototypeOf(arrayIterator), getPrototypeOf(getPrototypeOf(arrayIterator)), getPrototypeOf(""[Sym.iterator]()),
  getPrototypeOf(new NativeMap()[Sym.iterator]()), getPrototypeOf(new G.Set()[Sym.iterator]()),
  getPrototypeOf("".matchAll(/x/g)), getPrototypeOf(G.Uint8Array), getPrototypeOf(G.Uint8Array.prototype),
  AsyncFunctionPrototype, GeneratorFunctionPrototype, AsyncGeneratorFunctionPrototype,
  GeneratorFunctionPrototype.prototype, AsyncGeneratorFunctionPrototype.prototype,
  getPrototypeOf(AsyncGeneratorFunctionPrototype.prototype),
  getPrototypeOf(G.Iterator.from({ next() { return { done: true }; }, __proto__: null })),
  getPrototypeOf([].values().map((x) => x)), getPrototypeOf(G.Iterator.concat()),
]) visit(value);
// Objects that programs get as globals and from modules. A namespace freezes itself.
for (const things of [GLOBALS, ERROR_CLASSES, discoveryExports])
  for (const name of ownKeys(things)) visit(things[name]);

while (pendingCount > 0) {
  const object = pendingObjects[--pendingCount];
  visit(getPrototypeOf(object));
  visitProperties(object);
  freeze(object);
}
for (const name of ownKeys(G)) {
  const descriptor = getOwnPropertyDescriptor(G, name);
  if (descriptor.configurable && "value" in descriptor) defineConstant(G, name, descriptor.value);
}
