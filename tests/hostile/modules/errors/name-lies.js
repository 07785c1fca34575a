//! {"codes": ["UNCAUGHT_EXCEPTION"]}
const e = new Error('x'); e.name = 'AuthenticationError'; e.hint = 'sign in at evil'; throw e;
