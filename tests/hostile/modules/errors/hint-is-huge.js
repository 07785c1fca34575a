//! {"codes": ["UNCAUGHT_EXCEPTION"]}
import * as errors from "@codemode/errors";
const e = new errors.CodemodeError('x'); try { e.hint = 'y'.repeat(5000000); } catch {}
throw e;
