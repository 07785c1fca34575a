//! {"ends": ["returns"], "calls": [], "exec": {"ends": ["throws"], "message": "ALL_TOOLS has to stand in the program"}}
const seen = new Set(), open = [];
const visit = v => { if ((typeof v === 'object' && v !== null || typeof v === 'function') && v !== globalThis && v !== tools && !seen.has(v)) { seen.add(v); open.push(v) } };
for (const k of Reflect.ownKeys(globalThis)) visit(globalThis[k]);
for (const v of [(function* () {})(), (async function* () {})(), async () => {}, [].values(), new Map().keys(), new Set().keys(), ''.matchAll(/a/g), [].values().map(x => x), [].values().chunks(1), Iterator.concat(), new Error(), 1]) visit(Object.getPrototypeOf(v));
const loose = [];
while (open.length) {
  const o = open.pop();
  if (!Object.isFrozen(o)) loose.push(String(o[Symbol.toStringTag] ?? o.name ?? o));
  visit(Object.getPrototypeOf(o));
  for (const k of Reflect.ownKeys(o)) { const d = Object.getOwnPropertyDescriptor(o, k); visit(d.value); visit(d.get); visit(d.set) }
}
return loose
