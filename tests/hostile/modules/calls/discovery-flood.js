//! {"codes": [], "result": true, "timeout_ms": 8000}
import * as discovery from "@codemode/discovery";
let refused = 0;
for (let i = 0; i < 5000; i++) try { await discovery.listServers(); } catch (e) { refused++; }
globalThis.__codemode_result__ = refused > 0;
