//! {"codes": [], "result": [true, "undefined"]}
import * as host from "@codemode/servers/host";
const same = await import('@codemode/servers/host');
globalThis.__codemode_result__ = [same === host, typeof same.then];
