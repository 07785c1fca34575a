//! {"codes": [], "result": [1, true]}
import * as host from "@codemode/servers/host";
let threw = 0;
try { Object.setPrototypeOf(host, { pwn: 1 }); } catch { threw = 1; }
globalThis.__codemode_result__ = [threw, host.pwn === undefined];
