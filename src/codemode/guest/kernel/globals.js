// The guest's globals: which ones a program gets, by name, and which of the engine's are hidden from it.
// The function that wraps a program is in text.js, which also corrects columns for it.

const GLOBALS = freeze({
  __proto__: null, tools: guestTools, console: guestConsole, fetch: guestFetch, state: guestState,
  URL, URLSearchParams, TextEncoder, TextDecoder,
  callTool: guestCallTool, getTool: guestGetTool, mcpLog: guestMcpLog, mcpNotify: guestMcpNotify,
  setTimeout: guestSetTimeout, clearTimeout: guestClearTimeout,
  text: guestText, json: guestJson, content: guestContent, yield_control: guestYieldControl, API: guestApi,
});
// Globals that are made for each program from its config.
const GLOBAL_FACTORIES = freeze({
  __proto__: null, tools: makeTools, codecallContext: makeCodeCallContext, catalogTools: makeCatalogTools, MCP: makeServers, namespaces: makeScopes,
});
// Globals whose name in the program differs from their key, because another surface uses that key.
const GLOBAL_ALIASES = freeze({ __proto__: null, catalogTools: "tools" });
// Globals whose value is computed on first read.
const LAZY_GLOBALS = freeze({ __proto__: null, ALL_TOOLS: readAllTools });

// Reading an object writes its reference count. Of these objects a warm-up for modules needs nothing but the read.
const WARM_UP_GLOBALS = freeze(["URL", "URLSearchParams", "TextEncoder", "TextDecoder", "clearTimeout"]);

let installedNames = [];
const globalDescriptor = { __proto__: null, value: undefined, writable: false, enumerable: false, configurable: false };
const defineGlobal = (name, value, configurable) => {
  globalDescriptor.value = value;
  globalDescriptor.configurable = configurable;
  defineProperty(G, name, globalDescriptor);
  installedNames[installedNames.length] = name;
};
const defineLazyGlobal = (name, get, configurable) => {
  defineProperty(G, name, { __proto__: null, get, set: undefined, enumerable: false, configurable });
  installedNames[installedNames.length] = name;
};
// A warm-up's globals are removed afterwards: the real program may have different ones.
const installGlobals = (config) => {
  const names = config.globals, isRehearsal = config.is_rehearsal === true;
  given = config.given === undefined ? EMPTY_OBJECT : config.given;
  for (let i = 0; i < names.length; i++) {
    const name = names[i], make = GLOBAL_FACTORIES[name], shown = GLOBAL_ALIASES[name];
    const value = make === undefined ? GLOBALS[name] : make(given);
    if (LAZY_GLOBALS[name] !== undefined) defineLazyGlobal(name, LAZY_GLOBALS[name], isRehearsal);
    else if (value === undefined) throw new Err("unknown global");
    else defineGlobal(shown === undefined ? name : shown, value, isRehearsal);
  }
  if (isRehearsal) for (let i = 0; i < WARM_UP_GLOBALS.length; i++) GLOBALS[WARM_UP_GLOBALS[i]];
  configureSaved(given.saved, config.wrapper);
  if (savedConfig !== undefined) defineGlobal("saved", makeSavedProxy([]), isRehearsal);
  if (isModule()) installModule(given.module, isRehearsal);
  if (given.scopes !== undefined) {
    const spaces = ownKeys(scopes);
    for (let i = 0; i < spaces.length; i++) defineGlobal(spaces[i], scopes[spaces[i]], isRehearsal);
  }
  if (given.namespaces !== undefined) installNamespaces(given.namespaces, config.shadowed, isRehearsal);
};
// A namespace never replaces an existing global or a shadowed name. `eval` was removed from the engine, so it is added.
const installNamespaces = (names, shadowed, isRehearsal) => {
  if (names.length === 0) return;
  const taken = toNameSet(shadowed === undefined ? [] : shadowed);
  mapSet(taken, "eval", true);
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    if (getOwnPropertyDescriptor(G, name) === undefined && mapGet(taken, name) === undefined)
      defineGlobal(name, makeNamespace(name), isRehearsal);
  }
};
const uninstallGlobals = () => {
  for (let i = 0; i < installedNames.length; i++) deleteProperty(G, installedNames[i]);
  installedNames = [];
  if (isModule()) uninstallModule();
  configureSaved(undefined);
  shadowParameters = "";
  given = EMPTY_OBJECT;
};
const toNameSet = (list) => {
  const names = new NativeMap();
  for (let i = 0; i < list.length; i++) mapSet(names, list[i], true);
  return names;
};

// The `globalThis` of a program that may use it. Names are removed in place: an engine runs one program.
const guestGlobalThis = create(Obj.prototype);
const addToGlobalThis = (name, value) =>
  defineProperty(guestGlobalThis, name, { __proto__: null, value, writable: false, enumerable: false, configurable: true });
for (const name of ownKeys(G)) if (typeof name === "string") addToGlobalThis(name, name === "globalThis" ? guestGlobalThis : G[name]);

// Shadowed names are wrapper parameters without an argument. `globalThis` is one of them, because it gives access to
// the others by key; a program that may use it gets a copy without them. It is the first parameter, so that `arguments`
// exposes nothing else. Names that are not globals are skipped: they may not even be identifiers.
let wrapperArguments = [], shadowParameters = "";
const shadowGlobals = (config) => {
  const names = config.shadowed;
  let parameters = "globalThis", isGlobalThisShadowed = false;
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    if (name === "globalThis") isGlobalThisShadowed = true;
    else if (name in G && indexOf(parameters + ",", "," + name + ",") < 0) parameters += "," + name;
  }
  wrapper = makeWrapper(config.wrapper, parameters);
  shadowParameters = parameters;
  if (!isGlobalThisShadowed) wrapperArguments = [mayMention("globalThis", config.js) || savedConfig !== undefined ? finishGlobalThis(toNameSet(names)) : undefined];
  // Otherwise `__proto__ = {get x() { return this }}` makes the bare name `x` a getter that returns the real global object.
  if (config.is_rehearsal !== true) preventExtensions(G);
};
// A program can only use a name that its text contains, literally or with escapes: no other text becomes code.
const mayMention = (name, text) => indexOf(text, name) >= 0 || indexOf(text, "\\u") >= 0;
const finishGlobalThis = (names) => {
  mapForEach(names, (_, name) => deleteProperty(guestGlobalThis, name));
  for (let i = 0; i < installedNames.length; i++)
    if (mapGet(names, installedNames[i]) !== true) addToGlobalThis(installedNames[i], G[installedNames[i]]);
  return freeze(guestGlobalThis);
};
