//! {"codes": ["UNCAUGHT_EXCEPTION", "SANDBOX_LIMIT"]}
import * as errors from "@codemode/errors";
throw new errors.SandboxLimitError('forged');
