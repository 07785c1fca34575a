"""What a program is, what it returns, and what is checked before it runs."""

from __future__ import annotations

import math

import pytest
from recorder import Recorder
from suite import each_row

from codemode import CodeModeError, CodeModeToolError, Tool, create_code_mode_tool, failure_text
from codemode.errors import CodeModeSerializationError, CodeModeSyntaxError

# --- entry points ---


def test_the_tool_takes_exactly_one_program(within):
    tool = create_code_mode_tool([Recorder().tool])
    assert tool.name == "codeMode"
    assert tool.input_schema["required"] == ["js"]
    assert tool.input_schema["additionalProperties"] is False
    assert tool.input_schema["properties"]["js"]["description"]
    assert within(tool.execute({"js": "return await tools.hit({a: 1})"})) == {"a": 1}


@pytest.mark.parametrize("wrong", [{}, {"js": 1}, {"js": "return 1", "more": 2}, None, {"JS": "return 1"}])
def test_another_input_is_refused(within, wrong):
    with pytest.raises(CodeModeToolError, match=r'the input of codeMode is \{"js": "<program>"\}') as refused:
        within(create_code_mode_tool([]).execute(wrong))
    assert '{"js": "<program>"}' in failure_text(refused.value, None)


@each_row("js", ["", "   \n", "return", "return undefined", "1 + 1", "const x = 1", "// nothing", "null"])
def test_without_a_returned_value_the_result_is_none(run, js):
    assert run(js) is None


def test_top_level_await_and_return_work(run):
    assert run("const x = await 5; if (x) { return [x, await Promise.resolve(6)]; } return 0") == [5, 6]


# --- results ---


@each_row(
    "js, value",
    [
        ("null", None),
        ("[NaN, Infinity, -Infinity, 1.5, -0]", [None, None, None, 1.5, 0]),
        ("NaN", None),
        ("[1,,3]", [1, None, 3]),
        ("[undefined, () => 1, Symbol('s')]", [None, None, None]),
        ("{a: undefined, b: 1, f() {}, s: Symbol('s'), [Symbol('k')]: 1}", {"b": 1}),
        ("new Date(0)", "1970-01-01T00:00:00.000Z"),
        ("new Date(NaN)", None),
        ("[new Map([[1, 2]]), new Set([1]), /x/g, new Error('e')]", [{}, {}, {}, {"name": "Error", "message": "e"}]),
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


@each_row(
    "js",
    [
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
def test_returned_promises_are_awaited_and_inner_ones_are_empty(run, js, value):
    assert run(f"return ({js})") == value


def test_a_returned_promise_that_rejects_is_the_error(fails):
    assert fails(CodeModeError, "return Promise.reject(new RangeError('r'))").details["name"] == "RangeError"


# --- what is checked before the program runs ---


def test_an_unknown_tool_is_refused_with_the_nearest_names_before_anything_runs(fails):
    recorder = Recorder()
    error = fails(CodeModeSyntaxError, "await tools.hit(1);\n  await tools.hitt(1)", [recorder.tool])
    assert (error.details["line"], recorder.inputs) == (2, [])
    assert "hit" in str(error).replace("hitt", "")


def test_a_program_seen_before_is_checked_against_the_tools_of_now(run, fails):
    js = "return await tools.hit(await 77)"
    assert run(js, [Recorder().tool]) == 77
    assert run(js, [Recorder().tool]) == 77
    fails(CodeModeSyntaxError, js, [Recorder().tool.with_name("other")])
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
