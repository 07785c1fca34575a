//! {"ends": ["returns"], "value": true}
const b = new ArrayBuffer(16);
new Uint8Array(b).fill(7);
return new Uint8Array(b.transfer(1 << 16)).subarray(16).every(v => v === 0)
