//! {"codes": [], "result": [["length", "name"], true, true, true]}
import * as host from "@codemode/servers/host";
globalThis.__codemode_result__ = [Reflect.ownKeys(host.x).sort().map(String), Object.isFrozen(host.x), Object.isFrozen(host.__meta__), Object.isFrozen(host.__meta__.tools[0])];
