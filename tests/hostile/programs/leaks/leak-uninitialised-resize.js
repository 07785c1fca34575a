//! {"ends": ["returns"], "value": true}
const b = new ArrayBuffer(16, { maxByteLength: 1 << 20 });
b.resize(1 << 20);
b.resize(16);
b.resize(1 << 20);
return new Uint8Array(b).every(v => v === 0)
