//! {"codes": ["UNCAUGHT_EXCEPTION", "SANDBOX_LIMIT"]}
throw null;
