//! {"codes": [], "result": 1}
import * as host from "@codemode/servers/host";
const forged = { ...host.__meta__, tools: [{ toolName: 'admin', exportName: 'x' }] };
globalThis.__codemode_result__ = await host.x(forged.tools.length);
