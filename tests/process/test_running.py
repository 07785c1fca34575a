"""What a program is, what it returns, and how its source is read."""

from __future__ import annotations

import math

import pytest

from codemode import (
    CodeModeError,
    CodeModeSerializationError,
    CodeModeSyntaxError,
    CodeModeToolError,
    Tool,
    create_code_mode_tool,
    failure_text,
)


class Recorder:
    """A tool that notes its inputs and gives them back."""

    def __init__(self):
        self.inputs = []
        self.tool = Tool("hit", execute=self.hit)

    async def hit(self, value):
        self.inputs.append(value)
        return value


# --- entry points (A1 to A4) ---


def test_the_tool_takes_exactly_one_program(within):
    tool = create_code_mode_tool([Recorder().tool])
    assert tool.name == "codeMode"
    assert tool.input_schema["required"] == ["js"]
    assert tool.input_schema["additionalProperties"] is False
    assert tool.input_schema["properties"]["js"]["description"]
    assert within(tool.execute({"js": "return await tools.hit({a: 1})"})) == {"a": 1}


@pytest.mark.parametrize("wrong", [{}, {"js": 1}, {"js": "return 1", "more": 2}, "return 1", None, {"JS": "return 1"}])
def test_another_input_is_refused(within, wrong):
    with pytest.raises(CodeModeToolError, match=r'the input of codeMode is \{"js": "<program>"\}') as refused:
        within(create_code_mode_tool([]).execute(wrong))
    assert '{"js": "<program>"}' in failure_text(refused.value, None)


@pytest.mark.parametrize(
    "js", ["", "   \n", "return", "return undefined", "1 + 1", "const x = 1", "// nothing", "null"]
)
def test_without_a_returned_value_the_result_is_none(run, js):
    assert run(js) is None


def test_top_level_await_and_return_work(run):
    assert run("const x = await 5; if (x) { return [x, await Promise.resolve(6)]; } return 0") == [5, 6]


# --- results (A38 to A43) ---


@pytest.mark.parametrize(
    ("js", "value"),
    [
        ("null", None),
        ("[NaN, Infinity, -Infinity, 1.5, -0]", [None, None, None, 1.5, 0]),
        ("NaN", None),
        ("[1,,3]", [1, None, 3]),
        ("[undefined, () => 1, Symbol('s')]", [None, None, None]),
        ("{a: undefined, b: 1, f() {}, s: Symbol('s'), [Symbol('k')]: 1}", {"b": 1}),
        ("new Date(0)", "1970-01-01T00:00:00.000Z"),
        ("new Date(NaN)", None),
        ("[new Map([[1, 2]]), new Set([1]), /x/g, new Error('e')]", [{}, {}, {}, {}]),
        ("new Uint8Array([7, 8])", {"0": 7, "1": 8}),
        ("{toJSON() { return {x: 1} }}", {"x": 1}),
        ("Object.create({inherited: 1}, {own: {value: 2, enumerable: true}})", {"own": 2}),
        ("new (class A { x = 1; #y = 2 })()", {"x": 1}),
        ("[new Number(1), new String('s'), new Boolean(false)]", [1, "s", False]),
        ("2 ** 53", 2**53),
        ("1e21", 1e21),
        ("5e-324", 5e-324),
        ("'a\\u0000b\\u2028\\u2029\\u007f'", "a\0b\u2028\u2029\x7f"),
        ("'\\u{1F600}ü'", "\U0001f600ü"),
        ("['\\ud800', '\\udc00x']", ["\ufffd", "\ufffdx"]),
        ("'</script>\\\\\"\\n'", '</script>\\"\n'),
        ("'x'.repeat(70000) + 'y'", "x" * 70000 + "y"),
        ("true", True),
        ("Object.create(null)", {}),
        ("globalThis.nothing", None),
    ],
)
def test_results_follow_the_rules_of_json(run, js, value):
    result = run(f"return {js}" if not js.startswith("{") else f"return ({js})")
    assert result == value
    assert type(result) is type(value)


def test_zero_keeps_no_sign(run):
    assert math.copysign(1, run("return -0")) == 1


def test_a_proto_key_is_data(run):
    expected = {"__proto__": {"x": 1}, "b": 2}
    assert run("""return JSON.parse('{"__proto__": {"x": 1}, "b": 2}')""") == expected
    assert run("return {['__proto__']: {x: 1}, b: 2}") == expected


@pytest.mark.parametrize(
    "js",
    [
        "return () => 1",
        "return class {}",
        "return Symbol('s')",
        "const a = []; a.push(a); return a",
        "return {get x() { throw new Error('no') }}",
        "return {toJSON() { throw new Error('no') }}",
        "return new Proxy({}, {ownKeys() { throw new Error('no') }})",
        "return tools",
        "return tools.hit",
    ],
)
def test_what_is_not_json_is_a_serialization_error(fails, js):
    error = fails(CodeModeSerializationError, js, [Recorder().tool])
    assert error.code == "CODE_MODE_SERIALIZATION_ERROR"
    assert "result is not JSON" in str(error)


def test_a_result_nested_without_end_is_an_error(fails):
    error = fails(CodeModeSerializationError, "let a = []; for (let i = 0; i < 600; i++) a = [a]; return a")
    assert error.code == "CODE_MODE_SERIALIZATION_ERROR"
    assert error.trace.status == "failed"


def test_a_result_may_nest_512_levels(run):
    value = run("let a = []; for (let i = 1; i < 512; i++) a = [a]; return a")
    for _ in range(511):
        (value,) = value
    assert value == []


@pytest.mark.parametrize(
    ("js", "value"),
    [
        ("Promise.resolve({a: 1})", {"a": 1}),
        ("{then(resolve) { resolve(5) }}", 5),
        ("new Promise(r => Promise.resolve().then(() => r('late')))", "late"),
        ("{p: Promise.resolve(1)}", {"p": {}}),
        ("(async () => (async () => 3)())()", 3),
    ],
)
def test_returned_promises_are_awaited_and_inner_ones_are_empty(run, js, value):  # A41
    assert run(f"return ({js})") == value


def test_a_returned_promise_that_rejects_is_the_error(fails):
    assert fails(CodeModeError, "return Promise.reject(new RangeError('r'))").details["name"] == "RangeError"


# --- the language (A30 to A37) ---


@pytest.mark.parametrize(
    ("js", "value"),
    [
        ("undeclared = 4; return undeclared", 4),
        ("with ({a: 1}) { return a }", 1),
        ("let n = 0; for (let i = 0; i < 10; i++) n += i; return n", 45),
        ("let n = 0; while (n < 7) n++; return n", 7),
        ("function* g() { yield 1; yield 2 } return [...g()]", [1, 2]),
        (
            "async function* g() { yield 1; yield 2 } const r = []; for await (const x of g()) r.push(x); return r",
            [1, 2],
        ),
        ("class A { #x = 1; static s = 2; get x() { return this.#x } } return [new A().x, A.s]", [1, 2]),
        ("outer: for (const a of [1, 2]) for (const b of [3, 4]) if (b === 4) continue outer; return 'done'", "done"),
        ("return [[1, 2, 3].at(-1), Object.groupBy([1, 2], x => x % 2 ? 'o' : 'e')]", [3, {"o": [1], "e": [2]}]),
        ("const {a, ...rest} = {a: 1, b: 2}; return [a ?? 0, rest?.b]", [1, {"b": 2}["b"]]),
        ("return 010 + 0o10", 16),
        ("return 1 <!-- an old comment", 1),
        ("return [arguments.length, this === globalThis]", [0, True]),
        ("#!/usr/bin/env node\nreturn 1", None),
    ],
)
def test_the_language_is_sloppy_and_whole(run, fails, js, value):  # A37
    if js.startswith("#!"):
        fails(CodeModeSyntaxError, js)
    else:
        assert run(js) == value


def test_use_strict_is_honoured(fails):
    assert fails(CodeModeError, "'use strict'; undeclared = 1").details["name"] == "ReferenceError"
    fails(CodeModeSyntaxError, "'use strict'; with ({}) {}")


CLASSES = """
interface I {}
abstract class A { abstract f(): void; protected readonly x: number = 2; get(): number { return this.x } }
class B extends A implements I { override f(): void {} }
return new B().get()
"""


@pytest.mark.parametrize(
    ("js", "value"),
    [
        ("const x: number = 1; return x", 1),
        ("let s: string | null = null; s = 'a' as string; return s!.length", 1),
        ("function id<T extends object = {}>(x: T): T { return x } return id<{a: number}>({a: 2})", {"a": 2}),
        ("const r = {a: 1} satisfies Record<string, number>; return r", {"a": 1}),
        ("interface A { a: number }\ntype B = A & { b?: string };\nconst b: B = {a: 1} as B; return b", {"a": 1}),
        ("declare const nothing: number; return 1", 1),
        (CLASSES, 2),
        ("const f = async (a: number, b?: string, ...c: any[]): Promise<number> => a + c.length; return await f(1)", 1),
        ("type T = { [K in 'a' | 'b']: number }; const t: Partial<T> = {a: 1}; return t", {"a": 1}),
        ("for (const [k, v] of Object.entries({a: 1} as Record<string, number>)) return [k, v]", ["a", 1]),
        ("const hit = await tools.hit<any>({a: 1} as any); return hit", {"a": 1}),
    ],
)  # fmt: skip
def test_types_are_stripped(run, js, value):  # A31
    assert run(js, [Recorder().tool]) == value


@pytest.mark.parametrize(
    "js",
    [
        "enum A { B }",
        "namespace N { export const a = 1 }",
        "class A { constructor(private x: number) {} }",
        "const x = <number>1",
        "import x from 'y'",
        "import type { X } from 'y'",
        "export const a = 1",
        "await import('y')",
        "const fs = require('fs')",
        "@decorated class A {}",
    ],
)
def test_typescript_that_has_meaning_at_run_time_is_refused(fails, js):  # A32
    recorder = Recorder()
    error = fails(CodeModeSyntaxError, f"await tools.hit(1);\n{js}", [recorder.tool])
    assert error.details["line"] == 2
    assert recorder.inputs == []


def test_positions_survive_stripping(fails):  # A34
    js = "interface A {\n  a: number\n}\nconst x: A | null = null as A | null; throw new Error('here')"
    error = fails(CodeModeError, js)
    assert (error.details["line"], js.split("\n")[3][error.details["column"] - 1 :][:5]) == (4, "Error")


@pytest.mark.parametrize(
    ("js", "line"),
    [
        ("const x = ;", 1),
        ("await tools.hit(1);\nconst const = 3;\n", 2),
        ("await tools.hit(1);\n\n  let y = [1, 2;\n", 3),
        ("await tools.hit(1); let a; let a;", 1),
        ("await tools.hit(1);\nreturn 'unterminated", 2),
        ("break;", 1),
        ("await tools.hit(1); yield 1", 1),
    ],
)
def test_a_syntax_error_names_its_line_before_any_tool_runs(fails, js, line):
    recorder = Recorder()
    error = fails(CodeModeSyntaxError, js, [recorder.tool])
    assert error.code == "CODE_MODE_SYNTAX_ERROR"
    assert error.details["line"] == line
    assert error.details["problems"][0]["line"] == line
    assert f"line {line}, column " in str(error)
    assert recorder.inputs == []


def test_the_column_of_a_syntax_error_counts_from_the_models_own_text(fails):
    assert fails(CodeModeSyntaxError, "let x = 1; )").details["column"] == 12
    assert fails(CodeModeSyntaxError, "\nlet x = 1; )").details["column"] == 12


@pytest.mark.parametrize(
    "js",
    [
        "}",
        "{",
        "}; (async function(){",
        "}); tools.hit(1); (async function(){",
        "})(); tools.hit(1); (async () => {",
        "return 1 }), (async function(){",
        "} function other() {",
        "}, function () {",
        "return 1\n})\n//",
        "})/*",
        "*/ })",
        "`",
        "/*",
        "${}",
        "\n})\n(async function(){",
        "}) ; for (const t of [1]) tools.hit(t); (function(){",
        "} , await tools.hit(1), async function () {",
        ")",
        "}catch{",
    ],
)
def test_no_program_closes_its_wrapper(fails, js):  # A36
    recorder = Recorder()
    fails(CodeModeSyntaxError, js, [recorder.tool])
    assert recorder.inputs == []


@pytest.mark.parametrize("js", ["return 1 //", "return 1 /* })( */", "return '})'.length - 1", "return `}`.length"])
def test_braces_in_comments_and_strings_are_text(run, js):
    assert run(js) == 1


def test_a_parser_bomb_ends_in_bounded_time(fails):
    fails(CodeModeSyntaxError, "!>" * 131072, timeout_ms=5000)


# --- what is checked before the program runs ---


def test_an_unknown_tool_is_refused_with_the_nearest_names_before_anything_runs(fails):
    recorder = Recorder()
    error = fails(CodeModeSyntaxError, "await tools.hit(1);\n  await tools.hitt(1)", [recorder.tool])
    assert (error.details["line"], recorder.inputs) == (2, [])
    assert "hit" in str(error).replace("hitt", "")


def test_a_program_seen_before_is_checked_against_the_tools_of_now(run, fails):  # A35
    js = "return await tools.hit(await 77)"
    assert run(js, [Recorder().tool]) == 77
    assert run(js, [Recorder().tool]) == 77
    fails(CodeModeSyntaxError, js, [Recorder().tool.renamed("other")])
    assert run(js, [Recorder().tool]) == 77


def test_a_refused_program_is_refused_again(fails):
    for _ in range(2):
        assert fails(CodeModeSyntaxError, "enum Twice { A }").details["line"] == 1


def test_unchecked_programs_meet_the_unknown_tool_at_run_time(fails):
    recorder = Recorder()
    js = "await tools.hit(1); await tools.hitt(1)"
    error = fails(CodeModeToolError, js, [recorder.tool], check_program=False)
    assert recorder.inputs == [1]
    assert error.details["available_tools"] == ["hit"]
    assert "'hit'" in str(error)


def test_wrong_literal_input_is_refused_before_anything_runs(fails):
    recorder = Recorder()
    schema = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}
    strict = Tool("strict", execute=recorder.hit, input_schema=schema)
    error = fails(CodeModeSyntaxError, "await tools.hit(1);\nawait tools.strict({})", [recorder.tool, strict])
    assert (error.details["line"], recorder.inputs) == (2, [])


def test_a_program_that_is_no_text_is_a_type_error(run):
    with pytest.raises(TypeError, match="string"):
        run(b"return 1")


@pytest.mark.parametrize("js", ["return '\ud800'", "return '\udfff\ud800'.length + 'x'"])
def test_a_lone_surrogate_in_the_source_harms_nothing(run, js):
    assert isinstance(run(js), str)
