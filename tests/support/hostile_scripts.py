"""More than two hundred scripts that try to break what runs them: by hand, and mixed from parts."""

from __future__ import annotations

from itertools import product

_BY_HAND = """
while (true) {}
for (;;);
const f = () => f(); f();
const f = async () => { await null; return f(); }; await f();
await new Promise(() => {});
const a = []; const f = () => { a.push('x'.repeat(1e6)); return Promise.resolve().then(f) }; await f();
return new Array(2 ** 32 - 1).fill(0);
return 'x'.repeat(2 ** 29);
return 2n ** 1000000n;
return /^(a+)+$/.test('a'.repeat(40) + 'b');
throw null;
throw undefined;
throw Symbol('x');
throw { get message() { while (true); } };
throw Object.create(null);
throw new Proxy(new Error('x'), { get() { throw 1 } });
return { toJSON() { throw new Error('x') } };
return { get a() { throw new Error('x') } };
return new Proxy({}, { ownKeys() { throw 1 } });
return new Proxy({}, { ownKeys() { return Array.from({ length: 1e5 }, (_, n) => 'k' + n) } });
const a = {}; a.a = a; return a;
let a = {}; for (let n = 0; n < 1e5; n++) a = { a }; return a;
return [new Error('x'), new Map([[1, 2]]), new Set([1]), new Date(0), /x/, 1n, undefined, NaN, Symbol.iterator];
return function () {};
return class A {};
return Symbol('x');
return callTool;
return globalThis;
return this;
return arguments;
return new.target;
return import.meta;
return await import('fs');
import fs from 'fs';
export default 1;
require('fs');
process.exit(1);
eval('1');
new Function('return 1')();
[].constructor.constructor('return 1')();
(() => {}).constructor('return 1')();
(async () => {}).constructor('return 1')();
(function* () {}).constructor('return 1')();
Object.getPrototypeOf(async function () {}).constructor('return 1')();
Reflect.construct(Function, ['return 1']);
globalThis['ev' + 'al']('1');
return Reflect.ownKeys(globalThis);
Object.prototype.then = 1; return {};
Array.prototype.map = null; return [1].map((n) => n);
Promise.prototype.then = null; return await callTool('echo', 1);
Object.defineProperty(Object.prototype, 'success', { get() { return 1 } });
JSON.stringify = () => '}{'; return { a: 1 };
callTool = 1; return 1;
const callTool = 1; return callTool;
getTool.name = 'x';
codecallContext.x = 1;
Object.assign(codecallContext, { x: 1 });
return await callTool();
return await callTool(1);
return await callTool(null, null, null);
return await callTool('echo', () => 1);
return await callTool('echo', Symbol('x'));
return await callTool('echo', { get a() { throw 1 } });
const a = {}; a.a = a; return await callTool('echo', a);
return await callTool('echo', 'x'.repeat(2 ** 21));
return await callTool('x'.repeat(2 ** 20), {});
return await callTool('echo', 1, 2);
return await callTool('echo', 1, { get throwOnError() { throw 1 } });
return await callTool('fails', { how: 'os' });
return await callTool('fails', { how: 'stop' });
return await callTool('fails', { how: 'exit' });
return await callTool('fails', { how: 'tool' });
return await callTool('fails', { how: 'code' });
return await callTool('fails', { how: 'none' });
return await callTool('__x', {});
return await callTool('__proto__', {});
return await callTool('toString', {});
return await callTool('hasOwnProperty', {});
return await constructor.prototype({});
return getTool('__proto__');
return getTool();
return getTool({ toString() { return 'echo' } });
callTool('echo', 1);
callTool('echo', 1).then(() => {}); return 1;
await Promise.race([callTool('echo', 1), callTool('echo', 2)]); return 1;
return await Promise.all(Array.from({ length: 1000 }, () => callTool('echo', 1)));
const f = (n) => callTool('echo', n).then(() => f(n + 1)); await f(0);
try { await callTool('fails', { how: 'tool' }) } finally { return 1 }
try { await callTool('fails', { how: 'tool' }) } catch (e) { e.code = 'x'; throw e }
try { await callTool('fails', { how: 'tool' }) } catch (e) { return Reflect.ownKeys(e) }
console.log({ get a() { throw 1 } });
console.log(Symbol('x'), 1n, () => 1);
for (let n = 0; n < 1e5; n++) console.log('x'.repeat(100));
console.log('x'.repeat(1e7));
mcpLog('shout', 'x');
mcpLog('info', 'x', { get a() { throw 1 } });
mcpLog(1, 2, 3);
mcpNotify('x', { a: 'x'.repeat(1e6) });
const a = {}; a.a = a; mcpNotify('x', a);
for (let n = 0; n < 1e5; n++) mcpNotify('x', {});
with ({}) {}
let let = 1;
await = 1;
yield 1;
return (
}
}); (() => {
*/ return 1 /*
`${
"\\u{110000}"
#!/usr/bin/env node
<!-- x
@x class A {}
enum A { B }
namespace A { export const b = 1 }
abstract class A { private x = 1 }
const a: { [k: string]: number } = {}; return a as unknown as string;
type A = { a: 1 }; return 1 satisfies number;
label: for (;;) break label;
do {} while (false)
for await (const a of []) {}
debugger;
return 010;
return '\\08';
delete globalThis.callTool;
return typeof fetch + typeof process + typeof require;
const { process } = {}; return process;
const require = 1; return require;
class fetch {} return fetch;
function eval() {}
({ process });
({ process: 1 });
({}).process;
return 'process';
/* process */ return 1;
pro\\u0063ess;
return p\\u{72}ocess;
setTimeout(() => {}, 1);
new Worker('x');
WebAssembly;
new SharedArrayBuffer(1e9);
new ArrayBuffer(1e9);
new Uint8Array(1e9);
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
new FinalizationRegistry(() => {});
new WeakRef({}).deref();
return structuredClone({});
return [...'x'.repeat(1e6)].sort().length;
return Array.from({ length: 1e7 }, (_, n) => n).length;
return Object.fromEntries(Array.from({ length: 1e5 }, (_, n) => ['k' + n, n]));
return JSON.parse('['.repeat(1e5));
return JSON.parse('{"__proto__": {"a": 1}}');
return 'x'.localeCompare('y') + 'x'.normalize('NFKD');
return new Date().toISOString() + Math.random();
return Intl;
return escape('x') + unescape('x');
return String.raw`x${1}`;
return [,1,,2];
return -0;
return Infinity;
return '\\ud800';
return { '\\ud800': '\\udfff' };
return { __proto__: null, a: 1 };
return { ['__proto__']: 1 };
return null?.a;
""".strip().splitlines()

_VALUES = ["undefined", "null", "() => 1", "new Error('/root/x')", "callTool('echo', 1)", "[1n, { a: undefined }]"]
_USES = ["return {}", "throw {}", "return await {}", "return await callTool('echo', {})", "console.log({}); return 1"]
_AROUND = ["{}", "try {{ {} }} catch (e) {{ throw e }}", "return (async () => {{ {} }})()"]


def hostile_scripts() -> list[str]:
    """Return the scripts, each once."""
    mixed = [around.format(use.replace("{}", value, 1)) for around, use, value in product(_AROUND, _USES, _VALUES)]
    return list(dict.fromkeys([*_BY_HAND, *mixed]))
