//! {"codes": [], "result": "json"}
import * as host from "@codemode/servers/host";
globalThis.__codemode_result__ = await host.x({ toJSON() { return 'json'; } });
