//! {"ends": ["returns"], "value": "function", "calls": []}
for (const attack of [
  () => { console.log = () => 'evil' },
  () => { globalThis.console = { log() {} } },
  () => { delete globalThis.console }
]) { try { attack() } catch {} }
console.log('kept');
return typeof console.log
