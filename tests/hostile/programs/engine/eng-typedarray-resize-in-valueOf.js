//! {"ends": ["returns"]}
const b = new ArrayBuffer(64, { maxByteLength: 4096 }), t = new Uint8Array(b), r = [];
for (const m of ['fill', 'copyWithin', 'indexOf', 'includes', 'lastIndexOf', 'slice', 'subarray', 'with', 'at', 'set', 'join', 'toSorted', 'sort'])
  try { b.resize(64); t[m]({ valueOf() { b.resize(1); return 0 } }, { valueOf() { b.resize(0); return 40 } }, 50) } catch {}
return t.length
