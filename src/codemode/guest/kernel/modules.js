// What a module program imports: @codemode/errors, @codemode/discovery and a module for each server. Its text says which;
// the worker has put one read of a global in front of it, and the imports become what is taken there.

const SERVERS = "@codemode/servers/";
const MAX_SPECIFIER = 256;

const OWN_MODULES = freeze({
  __proto__: null,
  "@codemode/discovery": namespaceOf(discoveryExports),
  "@codemode/errors": namespaceOf(CLASSES),
});

const NO_MODULES = freeze({ __proto__: null, prefix: 0, imports: freeze([]), servers: freeze(create(null)) });
let moduleGiven = NO_MODULES;
const serverNamespaces = new NativeMap(); // path -> namespace
const loadings = new NativeMap(); // path -> promise of the namespace of a server that had to be asked for

const pathOf = (specifier) => (indexOf(specifier, SERVERS) === 0 ? slice(specifier, SERVERS.length) : undefined);
const keepNamespace = (path, server) => {
  const known = mapGet(serverNamespaces, path);
  if (known !== undefined) return known;
  const namespace = serverNamespace(path, server);
  mapSet(serverNamespaces, path, namespace);
  return namespace;
};
// Undefined for what the program was not given.
const givenNamespace = (specifier) => {
  const own = OWN_MODULES[specifier], path = pathOf(specifier);
  if (specifier === SAVED_MODULE) return givenSaved();
  if (own !== undefined || path === undefined) return own;
  const known = mapGet(serverNamespaces, path), server = getOwnPropertyDescriptor(moduleGiven.servers, path);
  return known !== undefined || server === undefined ? known : keepNamespace(path, server.value);
};

// --- import() ---

const importFailure = (specifier) =>
  moduleError({
    class: "CodemodeError", code: "IMPORT_FAILURE", message: "there is no module " + stringify(clip(specifier, MAX_NAME)),
    hint: "import @codemode/errors, @codemode/discovery or @codemode/servers/<serverId>",
  }, guestStack(new Err().stack), "");

const askForServer = (path) => {
  const known = mapGet(loadings, path);
  if (known !== undefined) return known;
  const answer = sendModule("catalog", "importServer", stringify(path));
  observe(answer);
  const loading = then(answer, (server) => keepNamespace(path, server), undefined);
  if (weakGet(slotOf, answer) !== undefined) mapSet(loadings, path, loading);
  return loading;
};
const loadText = (specifier) => {
  const namespace = givenNamespace(specifier), path = pathOf(specifier);
  if (namespace !== undefined) return new NativePromise((resolve) => resolve(namespace));
  if (path === undefined || path === "" || path.length > MAX_SPECIFIER) return rejected(importFailure(specifier));
  return then(askForServer(path), undefined, undefined); // each import() has a promise of its own
};
// In the place of `import`: it never throws, and each of its promises is the engine's own.
const load = freeze({
  import(specifier) {
    try {
      return loadText(typeof specifier === "string" ? specifier : specifierText(specifier));
    } catch (error) {
      return rejected(error);
    }
  },
}.import);
const specifierText = (value) => {
  if (typeof value === "symbol") throw new TypeErr("a specifier cannot be a symbol");
  return Str(value);
};

// --- the start and the end of a program ---

// The first thing that a program does is to read this; nobody can read it before or again.
const offer = (name, taken) =>
  defineProperty(G, name, {
    __proto__: null, set: undefined, enumerable: false, configurable: true,
    get() {
      deleteProperty(G, name);
      return taken;
    },
  });
const installModule = (asked, isRehearsal) => {
  moduleGiven = asked === undefined ? NO_MODULES : asked;
  defineProperty(G, "__codemode_result__", {
    __proto__: null, value: undefined, writable: true, enumerable: false, configurable: isRehearsal,
  });
  if (!moduleGiven.take) return;
  const taken = create(null), imports = moduleGiven.imports;
  for (let i = 0; i < imports.length; i++) {
    const namespace = givenNamespace(imports[i]);
    if (namespace === undefined) throw new Err("an import of a module that was not given");
    taken[i] = namespace;
  }
  taken.load = load;
  if (moduleGiven.last !== undefined) taken.last = keepLastValue(moduleGiven.last[0], moduleGiven.last[1]);
  offer(moduleGiven.take, taken);
};
const uninstallModule = () => {
  deleteProperty(G, "__codemode_result__");
  if (moduleGiven.take) deleteProperty(G, moduleGiven.take);
  moduleGiven = NO_MODULES;
  mapClear(serverNamespaces);
  mapClear(loadings);
};
