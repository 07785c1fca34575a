//! {"codes": [], "result": 1}
let threw = 0;
try { Object.prototype.__defineSetter__('__codemode_result__', () => {}); } catch { threw = 1; }
globalThis.__codemode_result__ = threw;
