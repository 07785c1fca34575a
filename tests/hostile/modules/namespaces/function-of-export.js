//! {"codes": [], "result": "EvalError"}
import * as host from "@codemode/servers/host";
const F = host.x.constructor;
let said = 'ran';
try { F('return this')(); } catch (e) { said = e.name; }
globalThis.__codemode_result__ = said;
