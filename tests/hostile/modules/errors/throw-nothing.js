//! {"codes": ["UNCAUGHT_EXCEPTION"]}
throw undefined;
