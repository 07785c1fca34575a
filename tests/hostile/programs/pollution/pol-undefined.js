//! {"ends": ["returns"], "value": [true, true], "calls": []}
for (const attack of [
  () => { undefined = 1 },
  () => { NaN = 1 },
  () => { Infinity = 1 }
]) { try { attack() } catch {} }
return [undefined === void 0, NaN !== NaN]
