//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
const a = tools.x(1);
try { a.constructor = class {} } catch {}
try { Object.defineProperty(a, 'constructor', { value: Promise }) } catch {}
return await a
