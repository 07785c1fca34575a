//! {"codes": [], "result": [1, true]}
import * as host from "@codemode/servers/host";
let threw = 0;
try { delete host.x; } catch { threw = 1; }
globalThis.__codemode_result__ = [threw, 'x' in host];
