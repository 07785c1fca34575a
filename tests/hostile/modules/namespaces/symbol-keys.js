//! {"codes": [], "result": ["Symbol(Symbol.toStringTag)"]}
import * as host from "@codemode/servers/host";
globalThis.__codemode_result__ = Reflect.ownKeys(host).filter((key) => typeof key === 'symbol').map(String);
