//! {"codes": [], "result": []}
import * as host from "@codemode/servers/host";
globalThis.__codemode_result__ = Object.getOwnPropertyNames(globalThis).filter((name) => name.startsWith('$'));
