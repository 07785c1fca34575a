//! {"codes": [], "result": 1}
import * as host from "@codemode/servers/host";
try { host.x = () => 'mine'; } catch {}
globalThis.__codemode_result__ = await host.x(1);
