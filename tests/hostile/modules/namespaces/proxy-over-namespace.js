//! {"codes": [], "result": ["mine", 1]}
import * as host from "@codemode/servers/host";
const wrapped = new Proxy(host, { get: () => () => 'mine' });
let said;
try { said = wrapped.x(1); } catch (e) { said = e.name; }
globalThis.__codemode_result__ = [said, await host.x(1)];
