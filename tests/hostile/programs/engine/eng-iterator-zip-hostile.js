//! {"ends": ["returns"]}
const evil = { [Symbol.iterator]: () => ({ next() { return new Proxy({}, { get() { throw 1 } }) }, return() { throw 2 } }) };
for (const mode of ['shortest', 'longest', 'strict']) try { [...Iterator.zip([[1], evil], { mode, padding: evil })] } catch {}
return 1
