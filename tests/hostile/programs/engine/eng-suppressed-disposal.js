//! {"ends": ["returns"]}
const r = [];
try { const d = { [Symbol.dispose]() { throw 1 } }; d[Symbol.dispose]() } catch (e) { r.push(e) }
return [r, typeof DisposableStack]
