"""Programs that are modules, on a worker with the real kernel and no host: how they run, and what they come to."""

from __future__ import annotations

import json
import sys

import pytest
from suite import each_row
from worker_driver import WAIT_MS, read_frame, read_hello

from codemode.protocol.messages import AnalyseProgram
from codemode.workers.image import GUEST_RUNTIME, WorkerImage
from codemode.workers.zygote import Zygote

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")

GITHUB = {
    "serverId": "github",
    "serverName": "GitHub",
    "tools": [{"toolName": "get-user", "exportName": "get_user", "description": "Says who."}],
}
IMPORTS = [("@codemode/servers/github", "gh")]
RESULT = "globalThis.__codemode_result__ = "


# --- what a module is ---


@each_row(
    "js, value",
    [
        ("typeof this", "undefined"),
        ("typeof arguments", "undefined"),
        ("(function () { return typeof this })()", "undefined"),
        ("await Promise.resolve(3)", 3),
        ("await (async () => { await null; return [1, { a: 2n ** 64n }] })()", [1, {"a": 2**64}]),
        ("Object.keys(import.meta)", []),
        ("[typeof eval, typeof setInterval, typeof fetch, typeof process, typeof require]", ["undefined"] * 5),
        ("[typeof tools, typeof callTool, typeof performance, typeof WeakRef]", ["undefined"] * 4),
        ("[typeof setTimeout, typeof clearTimeout, typeof console.log]", ["function"] * 3),
        ("((a) => { try { undeclared = 1 } catch (error) { return error.name } })()", "ReferenceError"),
        ("Object.keys(globalThis)", []),
    ],
)
def test_a_module_runs_as_the_language_says(kernel, js, value):
    assert kernel.module(RESULT + js).value == value


def test_every_form_of_export_runs(kernel):
    js = """
    export const a = 1; export let b = 2; export var c = 3; export function d() { return 4 }
    export async function e() {} export class F {} export default class {}
    export { a as g, a as default2, b as "odd name" }; const { x, ...rest } = { x: 5, y: 6 }; export { x, rest };
    """
    assert kernel.module(js + RESULT + "[a, b, c, d(), x, rest]").value == [1, 2, 3, 4, 5, {"y": 6}]


@pytest.mark.parametrize(
    "js",
    [
        "export const a = 1; " + RESULT + "await import('<input>').then(Object.keys)",
        RESULT + "await import('codemode:never').catch((error) => [error.name])",
        RESULT + "await import('/etc/passwd').catch((error) => [error.name])",
        RESULT + "await import('std').catch((error) => [error.name])",
    ],
)
def test_the_engines_own_import_reaches_nothing(kernel, js):
    # No text comes here with it but for what the parser did not understand, which the host does not run.
    assert kernel.module(js).value in (["ReferenceError"], ["a"], [])


# --- the result ---


@each_row(
    "js, value",
    [
        ("1; 2", None),
        (RESULT + "undefined", None),
        (RESULT + "null", None),
        (RESULT + "1;" + RESULT + "2", 2),
        (RESULT + "1; 3", 1),
        (RESULT + "{ toJSON() { return 'mine' } }", "mine"),
        (RESULT + "new Proxy([1], {})", [1]),
        (RESULT + "1; Object.freeze(globalThis)", 1),
        ("Object.defineProperty(globalThis, '__codemode_result__', { value: 7, writable: false })", 7),
        ("try { delete globalThis.__codemode_result__ } catch {}" + RESULT + "8", 8),
        (
            "try { Object.defineProperty(globalThis, '__codemode_result__', { get() { return 6 } }) } catch {}"
            + RESULT
            + "9",
            9,
        ),
        ("Reflect.deleteProperty(globalThis, '__codemode_result__');" + RESULT + "10", 10),
        ("try { Object.setPrototypeOf(globalThis, new Proxy({}, { get() { return 6 } })) } catch {}", None),
        ("Promise.resolve().then(() => { " + RESULT + "11 }); await null; await null", 11),
    ],
)
def test_the_result_is_what_was_left_in_its_place(kernel, js, value):
    assert kernel.module(js).value == value


@pytest.mark.parametrize("js", ["() => 1", "Symbol('x')", "(() => { const a = []; a.push(a); return a })()"])
def test_what_is_no_json_is_no_result(kernel, js):
    assert kernel.module(RESULT + js).error["origin"] == "result"


def test_a_result_whose_accessors_throw_is_the_programs_fault(kernel):
    error = kernel.module(RESULT + "{ get a() { throw new RangeError('mine') } }").error
    assert (error["name"], error["message"], error["origin"]) == ("RangeError", "mine", "result")


# --- places ---


@each_row(
    "js, place",
    [
        ("throw new Error('a')", "program.js:1:11"),
        ("nothing()", "program.js:1:1"),
        ("/* \u00fc\U0001f600 */ nothing()", "program.js:1:11"),
        ("const a = 1\n  nothing()", "program.js:2:3"),
        ("await null; null.x", "program.js:1:12"),
        ("/*\n\U0001f600*/ nothing()", "program.js:2:6"),
        ("let a = 1;\nlet a = 2;", "program.js:2:7"),
        ("/* \u00fc\U0001f600 */ const = 1", "program.js:1:17"),
        ("let x = 08", "program.js:1:9"),
    ],
)
@each_row("imports", [(), IMPORTS, [*IMPORTS, ("@codemode/errors", '{"\u00fc\U0001f600":e}')]])
def test_places_are_those_of_the_text_without_what_stands_before_it(kernel, js, place, imports):
    assert place in kernel.module(js, imports=imports, given={"github": GITHUB}).error["stack"]


# --- what the engine does not take ---


@each_row(
    "js, says",
    [
        ("return 1", "return not in a function"),
        ("const a = 1; const a = 2", "redefinition"),
        ("import x from 'y'; const", "variable name expected"),
        ("export { zz }", "exported variable 'zz' does not exist"),
        ("export default 1; export default 2", "redefinition"),
        ("with ({}) {}", "invalid keyword: with"),
        ("/(/", "expecting ')'"),
        ("class A { #a; #a }", "private class field"),
        ("<!-- x", "unexpected token"),
        ("const load = 1", "redefinition"),
        # No import is left in what is analysed. Of one that was not seen nothing runs either.
        ("import x from 'y'", "an import is not understood"),
        ("export * from '@codemode/servers/github'", "an import is not understood"),
    ],
)
def test_a_text_that_is_no_module_is_a_syntax_error_and_nothing_has_run(kernel, js, says):
    said = kernel.module("console.log('ran');\n" + js)
    assert (said.error["origin"], said.error["name"], said.frames) == ("syntax", "SyntaxError", [])
    assert says in said.error["message"]


@pytest.mark.parametrize("js", ["'a\0b'", "a\0", "\0", "'\ud800'", "\udfff", "// \ud83d"])
def test_nul_and_half_pairs_are_syntax_errors(kernel, js):
    said = kernel.module("console.log('ran');" + js)
    assert (said.error["origin"], said.frames) == ("syntax", [])


@pytest.mark.parametrize("js", ["(" * 200_000, "[" * 50_000 + "]" * 50_000, "a => " * 100_000, "-" * 500_000 + "1"])
def test_a_text_that_is_too_deep_ends_the_program(kernel, js):
    said = kernel.module("console.log('ran');" + js)
    assert (said.error["name"], said.frames) == ("RangeError", [])
    assert "origin" not in said.error


@pytest.mark.parametrize(
    "js",
    [
        "export const a = '" + "x" * 6_000_000 + "'",
        "export const " + ",".join(f"a{i}=[{i},'{i}',()=>{i}]" for i in range(60_000)),
        "export const a = '" + "x" * 20_000_000 + "'",
        "// " + "x" * 12_000_000,
        "[" + "[1,()=>{}]," * 200_000 + "]",
    ],
)
def test_memory_that_runs_out_while_compiling_is_said_to_be_that(kernel, js):
    said = kernel.module("console.log('ran');" + js, memory_limit_bytes=6 << 20)
    assert said.error["name"] == "InternalError", said.error["message"]
    assert "out of memory" in said.error["message"]
    assert (said.frames, "origin" in said.error) == ([], False)


@pytest.mark.parametrize("js", ["const a = []; for (;;) a.push(new Array(1000).fill(1))", "throw null"])
def test_memory_that_runs_out_in_a_module_is_said_to_be_that(kernel, js):
    assert "out of memory" in kernel.module(js, memory_limit_bytes=8 << 20).error["message"]


# --- console ---


@each_row(
    "arguments, text",
    [
        ("'a', 1, -0, null, undefined, true, 2n ** 70n", f"a 1 0 null undefined true {2**70}"),
        ("Symbol('x'), Symbol()", "Symbol(x) Symbol()"),
        ("{ b: 1, a: { d: [2, { z: 1, y: 2 }], c: 3 } }", '{"a":{"c":3,"d":[2,{"y":2,"z":1}]},"b":1}'),
        ("[undefined, () => 1, NaN]", "[null,null,null]"),
        ("{ n: 2n ** 64n, m: [-(2n ** 70n)] }", f'{{"m":[-{2**70}],"n":{2**64}}}'),
        ('JSON.parse(\'{"__proto__": 1, "a": 2}\')', '{"__proto__":1,"a":2}'),
        ("new Date(0)", '"1970-01-01T00:00:00.000Z"'),
        ("new Error('e'), new RangeError('r')", "Error: e RangeError: r"),
        ("() => 1, function named() {}", "[function] [function named]"),
        ("(() => { const a = {}; a.a = a; return a })()", "[Unserializable Object]"),
        ("{ get a() { throw 1 } }", "[Unserializable Object]"),
        ("{ toJSON() { throw 1 } }, { toJSON() {} }", "[Unserializable Object] [Unserializable Object]"),
        ("Proxy.revocable({}, (() => { })).proxy", "{}"),
        (
            "(() => { const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return proxy })()",
            "[Unserializable Object]",
        ),
        ("Array.from({ length: 100 }, () => 'a').join(''), ...Array(100).fill('b')", "a" * 100 + " b" * 100),
        ("", ""),
    ],
)
def test_the_console_writes_the_same_text_for_the_same_values(kernel, arguments, text):
    said = kernel.module(f"console.log({arguments})")
    assert said.of_kind("L") == [{"level": "log", "text": text}]


def test_what_getters_do_while_they_are_written_does_no_harm(kernel):
    js = """
    let read = 0;
    console.log({ get a() { read++; console.log('inner'); return 1 } }); console.warn({ toJSON() { return read } });
    """
    assert [line["text"] for line in kernel.module(js).of_kind("L")] == ["inner", '{"a":1}', "1"]


def test_a_console_that_is_full_ends_with_what_fits_and_names_the_limit(kernel):
    names = {"limit_names": {"max_console_bytes": "maxLogBytes"}, "max_console_bytes": 20}
    lines = kernel.module("console.log('12345'); console.error('\\u00fc'.repeat(50)); console.log('no more')", **names)
    assert lines.of_kind("L") == [
        {"level": "log", "text": "12345"},
        {"level": "error", "text": "\u00fc" * 6},
        {"level": "warn", "text": "console output cut: maxLogBytes is 20"},
    ]
    (cut,) = kernel.module(
        "for (;;) { console.log('x'.repeat(30)); break } console.log(1)", **{**names, "max_console_bytes": 0}
    ).of_kind("L")
    assert cut["level"] == "warn"


@pytest.mark.parametrize(
    "text", ["'\\u{1f600}'.repeat(40000)", "'x'.repeat(70000)", "Array(40000).fill('y')", "...Array(40000).fill('y')"]
)
def test_a_line_that_is_too_long_is_the_last(kernel, text):
    said = kernel.module(f"console.log({text}); console.log('no more')", max_console_bytes=1 << 24)
    line, cut = said.of_kind("L")
    assert 32_000 < len(line["text"]) <= 65_536
    line["text"].encode()
    assert cut == {"level": "warn", "text": "console output cut: a line of more than 65536 characters"}


def test_many_lines_end_with_a_warning(kernel):
    said = kernel.module("for (let i = 0; i < 5000; i++) console.log(i)", max_console_bytes=1 << 24)
    assert len(said.of_kind("L")) == 4097
    assert said.of_kind("L")[-1]["text"] == "console output cut: more than 4096 lines"


# --- asked before anything runs ---


def ask(text: str) -> dict[str, object]:
    zygote = Zygote(WorkerImage.from_installed(GUEST_RUNTIME))
    worker = zygote.spawn()
    try:
        read_hello(worker)
        worker.channel.sendall(AnalyseProgram(text, 5000, 2).to_frame())
        kind, answer = read_frame(worker)
        assert kind == b"a", answer
        return json.loads(answer)
    finally:
        worker.kill()
        assert worker.wait_until_dead(WAIT_MS)
        worker.close()
        zygote.kill()


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("const a = 1;\n/* \U0001f600 */ let a = 2", 2, 16),
        ("const = 1", 1, 7),
        ("let x = '\0'", 1, 10),
        ("let x = 1\nlet y = 08", 2, 9),
    ],
)
def test_a_worker_says_what_the_engine_has_against_a_module(text, line, column):
    (problem,) = ask(text)["problems"]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
    assert (problem["line"], problem["column"]) == (line, column)


def test_a_module_that_the_engine_takes_has_no_problems_and_has_not_run():
    answer = ask("console.log('ran'); export const a = 1; while (true) {}")
    assert "problems" not in answer
    assert "asked" not in answer
