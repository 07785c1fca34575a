//! {"codes": ["UNCAUGHT_EXCEPTION"]}
const bad = { then() { throw new RangeError('then'); } };
await bad;
