//! {"ends": ["returns"]}
const b = new ArrayBuffer(64, { maxByteLength: 64 }), t = new Uint8Array(b);
try { t.setFromBase64?.('QUJD', { get alphabet() { b.resize(0); return 'base64' } }) } catch {}
try { t.toBase64?.({ get alphabet() { b.resize(1); return 'base64' } }) } catch {}
return 1
