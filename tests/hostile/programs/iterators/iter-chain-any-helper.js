//! {"ends": ["returns"], "value": true}
const found = [];
for (const name of Object.getOwnPropertyNames(Iterator.prototype)) {
  if (name === 'constructor') continue;
  let it = [1].values(), error = 'none';
  try {
    for (let i = 0; i < 30000; i++) {
      const next = Iterator.prototype[name].call(it, name === 'reduce' || name === 'map' || name === 'flatMap' || name === 'filter' ? x => x : 1);
      if (typeof next?.next !== 'function') break;
      it = next;
    }
    it.next();
  } catch (e) { error = e.name }
  found.push(error);
}
return found.every(e => ['none', 'RangeError', 'TypeError'].includes(e))
