//! {"codes": [], "result": 3}
import * as host from "@codemode/servers/host";
globalThis.__codemode_result__ = await host.x.call(globalThis, 3);
