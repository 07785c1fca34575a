//! {"codes": [], "result": [1, false]}
import * as errors from "@codemode/errors";
let threw = 0;
try { Object.defineProperty(errors.CodemodeError, Symbol.hasInstance, { value: () => true }); } catch { threw = 1; }
globalThis.__codemode_result__ = [threw, {} instanceof errors.CodemodeError];
