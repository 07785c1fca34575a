//! {"ends": ["returns"], "value": [true, "Thu"], "calls": []}
for (const attack of [
  () => { Date.now = () => 7 },
  () => { Date.prototype.toString = () => 'evil' },
  () => { globalThis.Date = 1 }
]) { try { attack() } catch {} }
return [Date.now() > 7, String(new Date(0)).slice(0, 3)]
