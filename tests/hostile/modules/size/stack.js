//! {"codes": ["SANDBOX_LIMIT", "UNCAUGHT_EXCEPTION"]}
const f = () => f() + 1;
f();
