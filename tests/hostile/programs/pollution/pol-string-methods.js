//! {"ends": ["returns"], "value": [true], "calls": [["x", true]]}
for (const attack of [
  () => { String.prototype.indexOf = () => -1 },
  () => { String.prototype.slice = () => 'evil' },
  () => { String.prototype.lastIndexOf = () => -1 }
]) { try { attack() } catch {} }
try { null.x } catch (e) { return await tools.x(e.message.length > 0) }
