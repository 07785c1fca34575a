// Modules that a module program imports: @codemode/errors, @codemode/discovery and one for each server. The worker
// replaces its import declarations by one read of a global, which holds the namespaces.

const SERVER_PREFIX = "@codemode/servers/";
const MAX_SPECIFIER = 256;

const BUILT_IN_MODULES = freeze({
  __proto__: null,
  "@codemode/discovery": makeModuleNamespace(discoveryExports),
  "@codemode/errors": makeModuleNamespace(ERROR_CLASSES),
});

const EMPTY_MODULE_CONFIG = freeze({ __proto__: null, prefix: 0, imports: freeze([]), servers: freeze(create(null)) });
let moduleConfig = EMPTY_MODULE_CONFIG;
const serverNamespaces = new NativeMap(); // path -> namespace
const serverImports = new NativeMap(); // path -> promise of the namespace of a server that was requested from the host

const getServerPath = (specifier) => (indexOf(specifier, SERVER_PREFIX) === 0 ? slice(specifier, SERVER_PREFIX.length) : undefined);
const ensureServerNamespace = (path, server) => {
  const known = mapGet(serverNamespaces, path);
  if (known !== undefined) return known;
  const namespace = makeServerNamespace(path, server);
  mapSet(serverNamespaces, path, namespace);
  return namespace;
};
// Undefined for a module that did not come with the program.
const findNamespace = (specifier) => {
  const own = BUILT_IN_MODULES[specifier], path = getServerPath(specifier);
  if (specifier === SAVED_MODULE) return getSavedModule();
  if (own !== undefined || path === undefined) return own;
  const known = mapGet(serverNamespaces, path), server = getOwnPropertyDescriptor(moduleConfig.servers, path);
  return known !== undefined || server === undefined ? known : ensureServerNamespace(path, server.value);
};

// --- import() ---

const makeImportError = (specifier) =>
  makeModuleError({
    class: "CodemodeError", code: "IMPORT_FAILURE", message: "there is no module " + stringify(clip(specifier, MAX_NAME_LENGTH)),
    hint: "import @codemode/errors, @codemode/discovery or @codemode/servers/<serverId>",
  }, formatGuestStack(new Err().stack), "");

const requestServer = (path) => {
  const known = mapGet(serverImports, path);
  if (known !== undefined) return known;
  const answer = sendModuleRequest("catalog", "importServer", stringify(path));
  observe(answer);
  const loading = then(answer, (server) => ensureServerNamespace(path, server), undefined);
  if (weakGet(slotByPromise, answer) !== undefined) mapSet(serverImports, path, loading);
  return loading;
};
const loadModule = (specifier) => {
  const namespace = findNamespace(specifier), path = getServerPath(specifier);
  if (namespace !== undefined) return new NativePromise((resolve) => resolve(namespace));
  if (path === undefined || path === "" || path.length > MAX_SPECIFIER) return rejectWith(makeImportError(specifier));
  return then(requestServer(path), undefined, undefined); // each import() has a promise of its own
};
// Replaces `import()`: it never throws and always returns a native promise.
const importModule = freeze({
  import(specifier) {
    try {
      return loadModule(typeof specifier === "string" ? specifier : toSpecifier(specifier));
    } catch (error) {
      return rejectWith(error);
    }
  },
}.import);
const toSpecifier = (value) => {
  if (typeof value === "symbol") throw new TypeErr("a specifier cannot be a symbol");
  return Str(value);
};

// --- the start and the end of a program ---

// A global that the program's first statement reads; it deletes itself, so it can be read only once.
const defineOneTimeGlobal = (name, taken) =>
  defineProperty(G, name, {
    __proto__: null, set: undefined, enumerable: false, configurable: true,
    get() {
      deleteProperty(G, name);
      return taken;
    },
  });
const installModule = (asked, isRehearsal) => {
  moduleConfig = asked === undefined ? EMPTY_MODULE_CONFIG : asked;
  defineProperty(G, "__codemode_result__", {
    __proto__: null, value: undefined, writable: true, enumerable: false, configurable: isRehearsal,
  });
  if (!moduleConfig.take) return;
  const taken = create(null), imports = moduleConfig.imports;
  for (let i = 0; i < imports.length; i++) {
    const namespace = findNamespace(imports[i]);
    if (namespace === undefined) throw new Err("an import of a module that was not given");
    taken[i] = namespace;
  }
  taken.load = importModule;
  if (moduleConfig.last !== undefined) taken.last = makeLastValueHolder(moduleConfig.last[0], moduleConfig.last[1]);
  defineOneTimeGlobal(moduleConfig.take, taken);
};
const uninstallModule = () => {
  deleteProperty(G, "__codemode_result__");
  if (moduleConfig.take) deleteProperty(G, moduleConfig.take);
  moduleConfig = EMPTY_MODULE_CONFIG;
  mapClear(serverNamespaces);
  mapClear(serverImports);
};
