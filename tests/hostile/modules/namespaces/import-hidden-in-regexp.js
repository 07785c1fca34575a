//! {"codes": [], "any": true}
const a = 1, g = 1, b = 2;
globalThis.__codemode_result__ = a / b / g;
let z = /import x from 'y'/;

