//! {"codes": ["UNCAUGHT_EXCEPTION"]}
throw { then(f) { f(1); } };
