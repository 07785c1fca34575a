//! {"codes": [], "result": "TypeError"}
import * as host from "@codemode/servers/host";
let said = 'made';
try { new host.x(1); } catch (e) { said = e.name; }
globalThis.__codemode_result__ = said;
