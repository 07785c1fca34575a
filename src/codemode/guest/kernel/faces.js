// Faces of the guest: what a program may find among its globals, by name, and which of the engine's mean nothing to it.
// What its text becomes the body of is in text.js, which counts columns behind it.

const GLOBALS = freeze({
  __proto__: null, tools: guestTools, console: guestConsole, fetch: guestFetch, state: guestState,
  URL, URLSearchParams, TextEncoder, TextDecoder,
  callTool: guestCallTool, getTool: guestGetTool, mcpLog: guestMcpLog, mcpNotify: guestMcpNotify,
  setTimeout: guestSetTimeout, clearTimeout: guestClearTimeout,
  text: guestText, json: guestJson, content: guestContent, yield_control: guestYieldControl, API: guestApi,
});
// Those that each program has its own of, made of what it was given.
const MADE = freeze({
  __proto__: null, tools: makeTools, codecallContext: makeContext, catalogTools: makeCatalogTools, MCP: makeServers, namespaces: makeScopes,
});
// Those that a program knows by another name than that of their row, for another face has one of that name.
const SHOWN_AS = freeze({ __proto__: null, catalogTools: "tools" });
// Those that are read when the program looks.
const LAZY = freeze({ __proto__: null, ALL_TOOLS: readAllTools });

// Whoever reads an object counts in it: a rehearsal reads those of modules, for that is all that it takes.
const TOUCHED = freeze(["URL", "URLSearchParams", "TextEncoder", "TextDecoder", "clearTimeout"]);

let installed = [];
const globalProperty = { __proto__: null, value: undefined, writable: false, enumerable: false, configurable: false };
const put = (name, value, configurable) => {
  globalProperty.value = value;
  globalProperty.configurable = configurable;
  defineProperty(G, name, globalProperty);
  installed[installed.length] = name;
};
const putLazy = (name, get, configurable) => {
  defineProperty(G, name, { __proto__: null, get, set: undefined, enumerable: false, configurable });
  installed[installed.length] = name;
};
// A rehearsal's globals are taken away again, for the program that comes may have others.
const install = (config) => {
  const names = config.globals, isRehearsal = config.is_rehearsal === true;
  given = config.given === undefined ? NOTHING_GIVEN : config.given;
  for (let i = 0; i < names.length; i++) {
    const name = names[i], make = MADE[name], shown = SHOWN_AS[name];
    const value = make === undefined ? GLOBALS[name] : make(given);
    if (LAZY[name] !== undefined) putLazy(name, LAZY[name], isRehearsal);
    else if (value === undefined) throw new Err("unknown global");
    else put(shown === undefined ? name : shown, value, isRehearsal);
  }
  if (isRehearsal) for (let i = 0; i < TOUCHED.length; i++) GLOBALS[TOUCHED[i]];
  takeSaved(given.saved, config.wrapper);
  if (savedGiven !== undefined) put("saved", makeSaved([]), isRehearsal);
  if (isModule()) installModule(given.module, isRehearsal);
  if (given.scopes !== undefined) {
    const spaces = ownKeys(scopes);
    for (let i = 0; i < spaces.length; i++) put(spaces[i], scopes[spaces[i]], isRehearsal);
  }
  if (given.namespaces !== undefined) installNamespaces(given.namespaces, config.shadowed, isRehearsal);
};
// A namespace never takes the place of what else has its name; `eval` is none that the engine has any more.
const installNamespaces = (names, shadowed, isRehearsal) => {
  if (names.length === 0) return;
  const taken = namesOf(shadowed === undefined ? [] : shadowed);
  mapSet(taken, "eval", true);
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    if (getOwnPropertyDescriptor(G, name) === undefined && mapGet(taken, name) === undefined)
      put(name, makeNamespace(name), isRehearsal);
  }
};
const uninstall = () => {
  for (let i = 0; i < installed.length; i++) deleteProperty(G, installed[i]);
  installed = [];
  if (isModule()) uninstallModule();
  takeSaved(undefined);
  shadowParameters = "";
  given = NOTHING_GIVEN;
};
const namesOf = (list) => {
  const names = new NativeMap();
  for (let i = 0; i < list.length; i++) mapSet(names, list[i], true);
  return names;
};

// What a program that may name the global object finds there. One process has one program, which takes from it.
const shownGlobals = create(Obj.prototype);
const show = (name, value) =>
  defineProperty(shownGlobals, name, { __proto__: null, value, writable: false, enumerable: false, configurable: true });
for (const name of ownKeys(G)) if (typeof name === "string") show(name, name === "globalThis" ? shownGlobals : G[name]);

// Shadowed names are parameters of the wrapper that get no argument. The global object is one of them, for it hands out
// the others by any key; a program that may name it gets one without them. The first parameter, so that `arguments`
// shows nothing else. What the global object has not is nothing anyway, and may not even be a name.
let wrapperArguments = [], shadowParameters = "";
const shadow = (config) => {
  const names = config.shadowed;
  let parameters = "globalThis", isBanned = false;
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    if (name === "globalThis") isBanned = true;
    else if (name in G && indexOf(parameters + ",", "," + name + ",") < 0) parameters += "," + name;
  }
  wrapper = wrapperOf(config.wrapper, parameters);
  shadowParameters = parameters;
  if (!isBanned) wrapperArguments = [maySay("globalThis", config.js) || savedGiven !== undefined ? globalsWithout(namesOf(names)) : undefined];
  // `__proto__ = {get x() { return this }}` would else make the bare name `x` an accessor's, called with the real one.
  if (config.is_rehearsal !== true) preventExtensions(G);
};
// A name stands in a program as it is or with escapes, and there is no other text that becomes code.
const maySay = (name, text) => indexOf(text, name) >= 0 || indexOf(text, "\\u") >= 0;
const globalsWithout = (names) => {
  mapForEach(names, (_, name) => deleteProperty(shownGlobals, name));
  for (let i = 0; i < installed.length; i++)
    if (mapGet(names, installed[i]) !== true) show(installed[i], G[installed[i]]);
  return freeze(shownGlobals);
};
