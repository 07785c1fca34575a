//! {"codes": ["CALL_NOT_AWAITED"], "result": 1, "calls": []}
import * as host from "@codemode/servers/host";
globalThis.__codemode_result__ = { toJSON() { host.x('late'); return 1; } };
