//! {"codes": ["CALL_NOT_AWAITED"], "result": "done", "calls": null}
import * as host from "@codemode/servers/host";
host.never(1);
await host.x(1);
globalThis.__codemode_result__ = 'done';
