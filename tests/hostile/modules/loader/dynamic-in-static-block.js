//! {"codes": [], "result": true}
class A { static { A.p = import('@codemode/errors'); } }
globalThis.__codemode_result__ = 'ToolCallError' in await A.p;
