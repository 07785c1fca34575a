//! {"ends": ["returns"]}
const set = Object.getOwnPropertyDescriptor(Error.prototype, 'name').set;
const r = [];
for (const target of [Error.prototype, Object.prototype, JSON, tools, console, globalThis.Date, 1, null]) try { set.call(target, 'evil'); r.push('set') } catch (e) { r.push(e.name) }
return [r, new Error().name]
