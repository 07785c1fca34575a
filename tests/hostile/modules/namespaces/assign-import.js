//! {"codes": [], "result": "TypeError"}
import { x } from '@codemode/servers/host';
let said;
try { x = 1; } catch (e) { said = e.name; }
globalThis.__codemode_result__ = said;
