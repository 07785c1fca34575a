//! {"ends": ["returns"], "value": [true, true, true]}
const ctors = [tools.x, console.log, queueMicrotask].map(f => { try { return Object.getPrototypeOf(f) === Function.prototype || Object.getPrototypeOf(f) === null } catch { return 'threw' } });
return ctors
