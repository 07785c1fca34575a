// Module namespace objects, read-only as in the language. Those of servers define their members on first
// use, because most programs use a few tools of many.

// As the specification says: writes fail although members are reported as writable. The target does the rest:
// it has no prototype, is not extensible, and its members are not configurable.
const namespaceTraps = freeze({
  __proto__: null,
  set() { return false; },
  defineProperty(target, key, wanted) {
    const own = getOwnPropertyDescriptor(target, key);
    if (own !== undefined && own.writable) {
      const value = getOwnPropertyDescriptor(wanted, "value");
      if (wanted.writable === false || (value !== undefined && !is(value.value, own.value))) return false;
    }
    return defineProperty(target, key, wanted);
  },
});
const makeModuleNamespace = (exports) => {
  const target = create(null), names = sort(ownKeys(exports));
  for (let i = 0; i < names.length; i++)
    defineProperty(target, names[i], { __proto__: null, value: exports[names[i]], writable: true, enumerable: true, configurable: false });
  defineConstant(target, Sym.toStringTag, "Module");
  preventExtensions(target);
  return new NativeProxy(target, namespaceTraps);
};

// --- namespaces of servers ---

const unfinished = new NativeWeakMap(); // target -> {path, server, names}; `names` is set when all members are defined
const defineMember = (target, name, value) => {
  defineProperty(target, name, { __proto__: null, value, writable: true, enumerable: true, configurable: false });
  return value;
};
const makeMember = (target, lazy, name) => {
  if (name === "__meta__") return defineMember(target, name, freezeJson(lazy.server));
  const tools = lazy.server.tools;
  for (let i = 0; i < tools.length; i++)
    if (tools[i].exportName === name) return defineMember(target, name, makeServerFunction(lazy.path, tools[i]));
  return undefined;
};
const finishNamespace = (target) => {
  const lazy = weakGet(unfinished, target);
  if (lazy.names !== undefined) return lazy.names;
  const tools = lazy.server.tools, names = ["__meta__"];
  for (let i = 0; i < tools.length; i++) {
    const name = names[i + 1] = tools[i].exportName;
    if (target[name] === undefined) defineMember(target, name, makeServerFunction(lazy.path, tools[i]));
  }
  if (target.__meta__ === undefined) makeMember(target, lazy, "__meta__");
  preventExtensions(target);
  sort(names);
  names[names.length] = Sym.toStringTag;
  lazy.names = names;
  return names;
};
const serverTraps = {
  __proto__: null,
  get(target, key) {
    const value = target[key], lazy = weakGet(unfinished, target);
    return value !== undefined || typeof key !== "string" || lazy.names !== undefined ? value : makeMember(target, lazy, key);
  },
  set: namespaceTraps.set,
  ownKeys: finishNamespace,
  defineProperty(target, key, wanted) {
    finishNamespace(target);
    return namespaceTraps.defineProperty(target, key, wanted);
  },
};
for (const name of ["has", "getOwnPropertyDescriptor", "isExtensible", "preventExtensions", "deleteProperty", "setPrototypeOf"]) {
  const native = G.Reflect[name];
  serverTraps[name] = (target, key) => {
    finishNamespace(target);
    return native(target, key);
  };
}
freeze(serverTraps);
const makeServerNamespace = (path, server) => {
  const target = create(null);
  defineConstant(target, Sym.toStringTag, "Module");
  weakSet(unfinished, target, { __proto__: null, path, server, names: undefined });
  return new NativeProxy(target, serverTraps);
};
