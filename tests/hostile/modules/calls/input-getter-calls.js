//! {"codes": ["CALL_NOT_AWAITED"], "any": true, "calls": null}
import * as host from "@codemode/servers/host";
globalThis.__codemode_result__ = await host.x({ get a() { host.x('inner'); return 1; } });
