//! {"codes": [], "result": 0}
const b = new ArrayBuffer(8, { maxByteLength: 16 });
const v = new Uint8Array(b);
const odd = { toString() { b.resize(0); return 'aaaa'; } };
globalThis.__codemode_result__ = new TextEncoder().encodeInto(odd, v).written;
