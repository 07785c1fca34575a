//! {"ends": ["returns"], "value": ["TypeError", true], "calls": []}
for (const attack of [
  () => { Error.prototype.name = 'evil' },
  () => { Error.prototype.message = 'evil' },
  () => { Error.prototype.toString = () => 'evil' },
  () => { TypeError.prototype.name = 'evil' },
  () => { Error.stackTraceLimit = 0 },
  () => { globalThis.Error = null }
]) { try { attack() } catch {} }
try { null.x } catch (e) { return [e.name, e instanceof TypeError] }
