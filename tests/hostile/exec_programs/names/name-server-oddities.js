//! {"ends": ["returns", "throws"], "calls": null}
const out = [];
for (const name of ['__proto__', 'constructor', 'then', 'toJSON', 'search']) try { await MCP.gitHub[name]({}) } catch (e) { out.push(name) }
return typeof Object.prototype.polluted
