//! {"ends": ["returns"], "value": true}
const b = new ArrayBuffer(1 << 20);
return new Uint8Array(b).every(v => v === 0)
