//! {"codes": [], "result": [4, false]}
import * as host from "@codemode/servers/host";
let kept;
try { await host.fail(1); } catch (e) { kept = e; }
let threw = 0;
for (const key of ['message', 'hint', 'code', 'name']) try { kept[key] = 'forged'; } catch { threw++; }
globalThis.__codemode_result__ = [threw, kept.message === 'forged'];
