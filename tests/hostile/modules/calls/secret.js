//! {"codes": [], "result": false, "calls": null}
import * as host from "@codemode/servers/host";
let text = '';
try { await host.fail(1); } catch (e) { text = JSON.stringify(e) + String(e) + e.stack; }
globalThis.__codemode_result__ = text.includes('4711');
