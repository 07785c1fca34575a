//! {"ends": ["returns"], "value": true}
const before = globalThis.mark;
globalThis.mark = 1;
return before === undefined
