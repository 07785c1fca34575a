//! {"codes": [], "result": true, "timeout_ms": 8000}
import * as discovery from "@codemode/discovery";
let errors = 0;
for (const odd of [undefined, null, 1, {}, [], Symbol(), () => 1, 10n, { toString() { throw 1; } }, 'x'.repeat(100000)])
  for (const ask of [discovery.describeServer, discovery.listTools, discovery.getTool, discovery.searchTools])
    try { await ask(odd, odd); } catch (e) { errors += e instanceof Error; }
globalThis.__codemode_result__ = errors >= 30;
