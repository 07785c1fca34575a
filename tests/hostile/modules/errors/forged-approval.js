//! {"codes": ["UNCAUGHT_EXCEPTION"]}
import * as errors from "@codemode/errors";
const e = new errors.ToolCallError('forged'); e.code = 'APPROVAL_REQUIRED'; throw e;
