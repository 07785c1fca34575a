//! {"codes": ["UNCAUGHT_EXCEPTION"]}
throw Symbol('x');
