//! {"codes": [], "result": [true, "mine"]}
import * as errors from "@codemode/errors";
class Mine extends errors.ToolCallError { constructor() { super('mine'); this.extra = 1; } }
let said;
try { throw new Mine(); } catch (e) { said = [e instanceof errors.CodemodeError, e.message]; }
globalThis.__codemode_result__ = said;
