//! {"codes": ["UNCAUGHT_EXCEPTION", "SANDBOX_LIMIT"], "timeout_ms": 2000}
let n = 0;
await new Promise((resolve) => { const again = () => { n++; setTimeout(again, 0); }; again(); });
