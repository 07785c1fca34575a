//! {"codes": ["CALL_NOT_AWAITED"], "result": "done", "calls": []}
import * as host from "@codemode/servers/host";
host.never(1);
globalThis.__codemode_result__ = 'done';
