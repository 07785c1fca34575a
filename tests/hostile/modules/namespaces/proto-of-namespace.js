//! {"codes": [], "result": [null, true, true]}
import * as host from "@codemode/servers/host";
globalThis.__codemode_result__ = [Object.getPrototypeOf(host), host.__proto__ === undefined, host.constructor === undefined];
