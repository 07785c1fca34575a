// Faces of the guest: what a program may find among its globals, by name. What its text becomes the body of is in
// text.js, which counts columns behind it.

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
