//! {"ends": ["returns"]}
try { Object.freeze(new Uint8Array(4)) } catch (e) { return e.name }
