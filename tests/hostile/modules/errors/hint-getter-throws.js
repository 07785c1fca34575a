//! {"codes": ["UNCAUGHT_EXCEPTION"]}
import * as errors from "@codemode/errors";
class Bad extends errors.CodemodeError { get hint() { throw new Error('no'); } get message() { throw new Error('no'); } }
throw new Bad('x');
