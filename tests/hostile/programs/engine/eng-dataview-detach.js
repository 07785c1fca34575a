//! {"ends": ["returns"]}
const b = new ArrayBuffer(16), d = new DataView(b);
try { d.setInt32(0, { valueOf() { b.transfer(); return 1 } }) } catch (e) { return e.name }
return 'ok'
