"""Names that mean nothing in a program: no text that leaves them unwritten brings them back, nor the global object."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kernel_driver import KernelDriver, Said
from suite import each_row, full_only

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")

# `btoa` is a global of the engine that no literal leads to.
HIDDEN = ["eval", "Function", "AsyncFunction", "require", "process", "fetch", "setTimeout", "btoa"]
CALLED_WITH_SPIES = (Path(__file__).parent / "called_with_spies.js").read_text(encoding="utf-8")
LOOK = """const key = 'bt' + 'oa'; let found = false;
const look = (value) => {
  try {
    if (value !== null && /object|function/.test(typeof value) && typeof value[key] === 'function') found = true;
  } catch {}
  return value;
};
"""


def hidden(kernel: KernelDriver, js: str, *more: str, **config: object) -> Said:
    settings = {"globals": ["console"], "shadowed": [*HIDDEN, *more], **config}
    return kernel.run(js, **settings)  # type: ignore[arg-type]


ATTEMPTS = [
    "look(this)",
    "look((function () { return this })())",
    "look((() => this)())",
    "look((function () { return this }).call(undefined))",
    "look((function () { return this }).apply(null, []))",
    "look(Reflect.apply(function () { return this }, undefined, []))",
    "look((function () { return this }).bind()())",
    "look((function () { return this }).bind(null)())",
    "look((0, { f() { return this } }.f)())",
    "look(globalThis)",
    "look(globalThis?.['global' + 'This'])",
    "look(typeof globalThis === 'undefined' ? 0 : Object.getPrototypeOf(globalThis))",
    "look(arguments); for (const one of arguments) look(one)",
    "(function () { for (const one of arguments) look(one) })()",
    "try { look(arguments.callee) } catch {}",
    "try { look((function f() { return f.caller })()) } catch {}",
    "try { look((function f() { return f.arguments })()) } catch {}",
    "try { __proto__ = { get leak() { return this } }; look(leak) } catch {}",
    "try { __proto__ = new Proxy({}, { get(t, k, self) { look(self) }, has() { return true } }); anything } catch {}",
    "try { constructor = 1; toString = 2; look(constructor) } catch {}",
    "try { look(valueOf()) } catch {}",
    "try { look((0, valueOf)()) } catch {}",
    "try { look(__lookupGetter__('__proto__').call(undefined)) } catch {}",
    "try { __defineGetter__('leak', function () { return this }); look(leak) } catch {}",
    "try { Object.defineProperty(Object.prototype, 'leak', { get() { return this } }); look(leak) } catch {}",
    "try { Object.prototype.leak = 1 } catch {}",
    "try { Object.setPrototypeOf(Object.prototype, { get leak() { return this } }); look(leak) } catch {}",
    "try { look(new Function('return this')()) } catch {}",
    "try { look([].constructor.constructor('return this')()) } catch {}",
    "try { look((async () => {}).constructor('return this')()) } catch {}",
    "try { look((function* () {}).constructor('return this')().next().value) } catch {}",
    "try { look((async function* () {}).constructor('return this')()) } catch {}",
    "try { look(Object.getPrototypeOf(async function* () {}).prototype) } catch {}",
    "try { look((0, eval)('this')) } catch {}",
    "try { look(console.log.constructor('return this')()) } catch {}",
    "look(console); look(console.log); look(Object.getPrototypeOf(console))",
    "[1].forEach(function () { look(this) }); [2, 1].sort(function () { look(this); return 0 })",
    "[1].map(function () { look(this) }, undefined); Array.from([1], function () { look(this) })",
    "'a'.replace(/a/, function () { look(this); return '' })",
    "JSON.stringify({ a: 1 }, function (k, v) { look(this); return v })",
    "JSON.parse('[1]', function (k, v) { look(this) })",
    "Object.groupBy([1], function () { look(this) }); Map.groupBy([1], function () { look(this) })",
    "new Promise(function () { look(this) }).then(undefined)",
    "await Promise.resolve().then(function () { look(this) })",
    "await { then(resolve) { look(this); look(resolve); resolve() } }",
    "await new Promise((done) => queueMicrotask(function () { look(this); done() }))",
    "try { look(await Array.fromAsync.call(undefined, [1], function () { look(this) })) } catch {}",
    "try { look(await (0, Array.fromAsync)([1], function () { look(this) })) } catch {}",
    "try { Iterator.from({ next() { look(this); return { done: true } } }).toArray() } catch {}",
    "try { [1].values().map(function () { look(this) }).toArray() } catch {}",
    "try { look(Reflect.get({ get a() { return this } }, 'a', undefined)) } catch {}",
    "try { look(Reflect.construct(function () { look(this); look(new.target) }, [])) } catch {}",
    "try { look(Symbol.for('x').description); new (class { static { look(this) } })() } catch {}",
    "try { const o = { toString() { look(this); return '' } }; `${o}`; o + '' } catch {}",
    "try { tag`a`; function tag() { look(this) } } catch {}",
    "try { null.x } catch (error) { look(error); look(error.stack) }",
    "try { Error.prepareStackTrace = (e, all) => { for (const s of all) look(s.getThis()) }; Error().stack } catch {}",
    "try { const m = await import('std'); look(m) } catch {}",
    "try { look(new Proxy(function () { return this }, {})()) } catch {}",
    "try { for (const k of Reflect.ownKeys(globalThis)) look(globalThis[k]) } catch {}",
    "try { delete globalThis.console } catch {} ; look(globalThis)",
    "for (const key of ['b', 't']) { switch (key) { default: look(this) } }",
    "class A { x = look(this); static y = look(this) } new A()",
    "label: { look((function () { return typeof this })()) }",
]


@each_row("js", ATTEMPTS)
@each_row("more", [(), *full_only((("globalThis",),))], ids=["globalThis", "no globalThis"])
def test_no_program_finds_a_name_that_it_does_not_write(kernel, js, more):
    said = hidden(kernel, LOOK + js + "\nreturn found", *more)
    assert said.value is False
    plain = kernel.run(LOOK + "look(globalThis); return found")
    assert plain.value is True, "the test looks at nothing"


CODE_CALL = ["callTool", "getTool", "codecallContext", "console", "mcpLog", "mcpNotify"]
THROUGH_CODE_CALL = [
    "for (const one of [callTool, getTool, mcpLog, mcpNotify]) { look(one); look(Object.getPrototypeOf(one)) }",
    "const input = { get x() { look(this); return 1 }, toJSON() { look(this); return 1 } }; await callTool('e', input)",
    "await callTool('e', 1, new Proxy({}, { get(t, k, self) { look(t); look(self); look(this) } }))",
    "await callTool.call(undefined, 'e', 1, { get throwOnError() { look(this); return false } })",
    "try { await callTool({ toString() { look(this) } }) } catch (error) { look(error); look(error.stack) }",
    "look(await callTool('e', { then: 1 }, { throwOnError: false }))",
    "callTool('e', 1).then(function () { look(this) }, function () { look(this) }); await callTool('e', 2)",
    "const p = callTool('e', 1); look(p); look(p.constructor); await p.then.call(p, function () { look(this) })",
    "const p = callTool('e', 1); try { look(p.then.call(undefined, () => {})) } catch {}; await p",
    "await Promise.all.call(class { constructor(f) { look(this); f(look, look) } static resolve(v) { return v } }, [])",
    "try { mcpLog('info', { toString() { look(this); return '' } }, { toJSON() { look(this); return 1 } }) } catch {}",
    "try { mcpNotify('e', new Proxy({}, { ownKeys() { look(this); return [] } })) } catch {}",
    "look(codecallContext); look(Object.getPrototypeOf(codecallContext)); look(codecallContext.constructor)",
    "look(codecallContext['__proto__']); look(codecallContext.a); look(getTool('t')); look(getTool('t').inputSchema)",
    "look(getTool.call(globalThis, 't')); look(Reflect.apply(getTool, undefined, ['__proto__']))",
    "try { look(Reflect.construct(callTool, ['e'], function () {})) } catch {}",
    "try { look(callTool.bind().constructor('return this')()) } catch {}",
    "try { look(new (class extends callTool {})()) } catch {}",
    "return { get found() { look(this); return found }, toJSON() { look(this); return found } }",
    "return new Proxy({}, { get(t, k, self) { look(self); look(this); return k === 'toJSON' ? () => found : 1 } })",
]


@each_row("js", THROUGH_CODE_CALL)
@each_row("more", [(), ("globalThis",)], ids=["globalThis", "no globalThis"])
def test_nor_do_the_globals_of_code_call_hand_it_out(kernel, js, more):
    if "globalThis" in more:
        js = js.replace("globalThis", "undefined")
    definition = {"name": "t", "description": "", "inputSchema": {"type": "object"}}
    given = {"context": {"a": {}}, "definitions": {"t": definition}, "all": True, "namespaces": []}
    said = hidden(kernel, LOOK + js + "\nreturn found", *more, globals=CODE_CALL, given=given)
    assert said.value is False


def test_no_function_of_the_engine_hands_the_global_object_to_what_it_calls(kernel):
    said = hidden(kernel, LOOK + CALLED_WITH_SPIES)
    assert said.value == [True, False]


def test_where_the_global_object_may_be_named_it_is_a_frozen_one_without_the_names(kernel):
    js = """
    const others = ['JSON', 'console', 'Map', 'parseInt'].every((name) => name in globalThis);
    const gone = ['Fun' + 'ction', 'proc' + 'ess', 'bt' + 'oa', 'e' + 'val'].map((name) => typeof globalThis[name]);
    let refused = 0;
    for (const change of [() => { globalThis.x = 1 }, () => { delete globalThis.JSON }, () => { globalThis.JSON = 1 },
      () => Object.setPrototypeOf(globalThis, {})]) try { change() } catch { refused++ }
    return [others, gone, Object.isFrozen(globalThis), globalThis.globalThis === globalThis, refused,
      Object.keys(globalThis), globalThis.JSON === JSON, globalThis.hasOwnProperty('Array')];
    """
    value = hidden(kernel, js).value
    assert value == [True, ["undefined"] * 4, True, True, 4, [], True, True]
    assert hidden(kernel, "return [typeof globalThis, typeof Array]", "globalThis").value == ["undefined", "function"]


def test_shadowed_names_are_undefined_and_others_are_as_ever(kernel):
    js = "return [typeof btoa, typeof Function, typeof process, typeof atob, typeof console, arguments.length]"
    assert hidden(kernel, js).value == ["undefined"] * 3 + ["function", "object", 1]
    assert hidden(kernel, js, "globalThis").value == ["undefined"] * 3 + ["function", "object", 0]
    assert hidden(kernel, js, "console", "console").value[4] == "undefined"
    assert kernel.run("return typeof btoa").value == "function"
    assert kernel.run("return typeof btoa", shadowed=[]).value == "function"


@each_row(
    "name",
    [
        "class",
        "let",
        "await",
        "yield",
        "arguments",
        "eval",
        "a b",
        "1x",
        "){evil(",
        "\u00fc",
        "",
        "__proto__",
        "static",
    ],
)
def test_what_is_no_parameter_is_left_out(kernel, name):
    said = hidden(kernel, "return typeof btoa", name)
    assert said.value == "undefined"


def test_names_of_the_language_that_hang_on_the_global_object_may_be_shadowed(kernel):
    assert hidden(kernel, "return [undefined, NaN, Infinity]", "undefined", "NaN", "Infinity").value == [None] * 3


@each_row(
    "js, place",
    [
        ("throw new Error('a')", "program.js:1:11"),
        ("nothing()", "program.js:1:1"),
        ("/* \u00fc\U0001f600 */ nothing()", "program.js:1:11"),
        ("const a = 1\n  nothing()", "program.js:2:3"),
    ],
)
@each_row("more", [(), ("globalThis",), ("Map", "Set", "globalThis")])
def test_errors_have_the_same_place_whatever_is_shadowed(kernel, js, place, more):
    shadowed, plain = hidden(kernel, js, *more).error, kernel.run(js).error
    assert place in shadowed["stack"]
    assert shadowed["stack"] == plain["stack"]


@pytest.mark.parametrize("js", ["return (", "var a = 010", "with ({}) { }", "const a = 1\nconst a = 2", "let x = 08n"])
def test_syntax_errors_have_the_same_place_whatever_is_shadowed(kernel, js):
    shadowed, plain = hidden(kernel, js).error, kernel.run(js).error
    assert shadowed == plain
    assert shadowed["origin"] == "syntax"


@pytest.mark.parametrize(
    "js",
    [
        "}), console.log('ran'), (async function(globalThis){",
        "} ) ; console.log('ran'); ( async function () {",
        "}); this.btoa = 1; (function(){",
    ],
)
def test_a_program_that_closes_the_wrapper_did_not_run(kernel, js):
    said = hidden(kernel, js)
    assert said.error["origin"] == "syntax"
    assert said.frames == []


# --- a program that is only compiled ---


@pytest.mark.parametrize("js", ["console.log('ran'); return 1", "while (true) {}", "", "await nothing", "throw 1"])
def test_a_program_that_is_only_compiled_does_not_run(kernel, js):
    for config in ({}, {"shadowed": HIDDEN, "globals": ["console"]}):
        said = kernel.run(js, compile_only=True, **config)
        assert (said.kind, said.value, said.frames) == ("V", None, [])
        assert said.body["undefined"] is True


@pytest.mark.parametrize("js", ["return (", "}); console.log('ran'); (function () {", "var a = 010"])
def test_what_does_not_compile_says_so(kernel, js):
    said = kernel.run(js, compile_only=True)
    assert (said.error["origin"], said.frames) == ("syntax", [])


@pytest.mark.parametrize("name", ["globalThis", r"\u0067lobalThis", r"globalThi\u{73}", r"\u{067}\u006cobalThis"])
def test_the_global_object_is_there_however_its_name_is_written(kernel, name):
    assert hidden(kernel, f"return ['JSON', 'btoa'].map((one) => typeof {name}[one])").value == ["object", "undefined"]
    assert hidden(kernel, f"return typeof {name}", "globalThis").value == "undefined"


def test_names_that_the_global_object_inherits_mean_nothing_either_and_may_be_said_twice(kernel):
    names = ["toString", "valueOf", "btoa", "JSON", "JSON", "toString"]
    js = "return [typeof toString, typeof valueOf, typeof JSON, typeof btoa, typeof Math, arguments.length]"
    assert hidden(kernel, js, *names).value == ["undefined"] * 4 + ["object", 1]
