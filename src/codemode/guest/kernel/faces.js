// Faces of the guest: what a program may find among its globals, by name, and which of the engine's mean nothing to it.
// What its text becomes the body of is in text.js, which counts columns behind it.

const GLOBALS = freeze({ __proto__: null, tools: guestTools, console: guestConsole, fetch: guestFetch });

// A rehearsal's globals are taken away again, for the program that comes may have others.
const install = (names, isRehearsal) => {
  for (let i = 0; i < names.length; i++) {
    const value = GLOBALS[names[i]];
    if (value === undefined) throw new Err("unknown global");
    defineProperty(G, names[i], { __proto__: null, value, writable: false, enumerable: false, configurable: isRehearsal });
  }
};
const uninstall = () => {
  const names = ownKeys(GLOBALS);
  for (let i = 0; i < names.length; i++) deleteProperty(G, names[i]);
};

// Shadowed names are parameters of the wrapper that get no argument. The global object is one of them, for it hands out
// the others by any key; a program that may name it gets one without them. The first parameter, so that `arguments`
// shows nothing else.
let wrapperArguments = [];
const shadow = (kind, names) => {
  const isShadowed = new NativeMap();
  for (let i = 0; i < names.length; i++) mapSet(isShadowed, names[i], true);
  const shown = create(Obj.prototype), keys = ownKeys(G);
  let parameters = "globalThis";
  for (let i = 0; i < keys.length; i++) {
    const name = keys[i];
    if (name === "globalThis" || typeof name !== "string") continue;
    if (mapGet(isShadowed, name) === true) parameters += "," + name;
    else constant(shown, name, G[name]);
  }
  constant(shown, "globalThis", shown);
  wrapper = wrapperOf(kind, parameters);
  wrapperArguments = mapGet(isShadowed, "globalThis") === true ? [] : [freeze(shown)];
  // `__proto__ = {get x() { return this }}` would else make the bare name `x` an accessor's, called with the real one.
  freeze(G);
};
