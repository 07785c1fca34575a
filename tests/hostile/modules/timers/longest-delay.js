//! {"codes": [], "result": 1}
const id = setTimeout(() => {}, 2147483647);
clearTimeout(id);
globalThis.__codemode_result__ = 1;
