//! {"codes": [], "result": [1, 2]}
import * as host from "@codemode/servers/host";
let threw = 0;
try { Object.defineProperty(host, 'x', { get() { return () => 'mine'; } }); } catch { threw = 1; }
globalThis.__codemode_result__ = [threw, await host.x(2)];
