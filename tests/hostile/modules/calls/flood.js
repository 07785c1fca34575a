//! {"codes": [], "result": true, "calls": null, "timeout_ms": 8000}
import * as host from "@codemode/servers/host";
const ended = await Promise.allSettled(Array.from({ length: 5000 }, (_, i) => host.x(i)));
globalThis.__codemode_result__ = ended.filter((one) => one.status === 'fulfilled').length <= 256;
