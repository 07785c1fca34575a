//! {"ends": ["returns"], "value": [true, true]}
const one = ALL_TOOLS[0];
try { one.id = 'host:core:admin' } catch {}
try { ALL_TOOLS.push({ id: 'pwn' }) } catch {}
return [Object.isFrozen(ALL_TOOLS), Object.isFrozen(one)]
