//! {"codes": [], "result": []}
const said = [];
for (const name of ['__proto__', 'constructor', 'toString', '@codemode/servers/__proto__', '@codemode/servers/constructor', '@codemode/servers/', '@codemode/', ''])
  try { await import(name); said.push(name); } catch (e) { if (!(e instanceof Error)) said.push('odd'); }
globalThis.__codemode_result__ = said;
