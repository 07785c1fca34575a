//! {"codes": [], "result": "text", "calls": null}
import * as host from "@codemode/servers/host";
globalThis.__codemode_result__ = (await host.thenable()).then;
