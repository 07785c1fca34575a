"""What an error of a program looks like on the host."""

from __future__ import annotations

import asyncio
import gc
import pickle
import re

import pytest
from suite import each_row

from codemode import CodeModeError, CodeModeTimeoutError, CodeModeToolError, Tool, run_code_mode
from codemode.errors import CodeModeBridgeLimitError, CodeModeDetachedBridgeRequestError, CodeModeSyntaxError


async def echo(value):
    return value


ECHO = Tool("echo", execute=echo)


@each_row(
    "js, name, message",
    [
        ("throw new Error('m')", "Error", "m"),
        ("throw new TypeError('m')", "TypeError", "m"),
        ("null.x", "TypeError", "cannot read property 'x' of null"),
        ("nothing()", "ReferenceError", "nothing is not defined"),
        ("class Mine extends Error { name = 'Mine' } throw new Mine('m')", "Mine", "m"),
        ("throw 'text'", "Error", "text"),
        ("throw 42", "Error", "42"),
        ("throw undefined", "Error", "undefined"),
        ("throw {a: 1}", "Error", '{"a":1}'),
        ("throw {message: 'm', name: 'N'}", "N", "m"),
        ("throw Symbol('s')", "Error", "Symbol()"),
        ("throw [1, 2]", "Error", "[1,2]"),
        ("throw {message: 'm', sku: 'A1'}", "Error", '{"message":"m","sku":"A1"}'),
        ("throw Object.assign(new Error('m'), {sku: 'A1'})", "Error", 'm {"sku":"A1"}'),
        ("throw new Error('m', {cause: new TypeError('c')})", "Error", "m (cause: TypeError: c)"),
        ("throw new Error('m: c', {cause: new TypeError('c')})", "Error", "m: c"),
        ("throw new Error('m', {cause: {a: 1}})", "Error", 'm (cause: {"a":1})'),
        ("throw () => 1", None, None),
        ("throw Object.create(null)", "Error", "{}"),
        ("throw {get message() { throw 1 }, get name() { throw 2 }}", "Error", None),
        ("throw new Proxy({}, {get() { throw 1 }})", "Error", "[unprintable]"),
        ("throw new AggregateError([new Error('inner')], 'outer')", "AggregateError", "outer: Error: inner"),
        (
            "const r = Proxy.revocable([], {}); r.revoke(); throw Object.assign(Error('m'), { errors: r.proxy })",
            "Error",
            None,
        ),
        (
            "const errors = new Proxy([1], { get() { throw 1 } }); throw Object.assign(new Error('m'), { errors })",
            "Error",
            "m",
        ),
        ("return Promise.reject(new RangeError('m'))", "RangeError", "m"),
        ("await Promise.any([Promise.reject(1)])", "AggregateError", "All promises were rejected: 1"),
        ("const e = new Error(''); e.message = 'later'; throw e", "Error", "later"),
        ("throw new Error('\\u{1F600}\\u0000\\ud800')", "Error", "\U0001f600\0\ufffd"),
        ("JSON.parse('{')", "SyntaxError", None),
        ("eval('1')", None, None),
        ("new Function('return 1')", "EvalError", None),
    ],
)
def test_what_a_program_throws_keeps_its_name_and_message(fails, js, name, message):
    error = fails(CodeModeError, js)
    assert error.code == "CODE_MODE_ERROR"
    assert name is None or error.details["name"] == name
    assert message is None or str(error) == message


def test_a_null_that_is_thrown_is_an_error(fails):
    assert fails(CodeModeError, "throw null").code == "CODE_MODE_ERROR"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("CodeModeTimeoutError", "CODE_MODE_TIMEOUT"),
        ("CodeModeProtocolError", "CODE_MODE_PROTOCOL_ERROR"),
        ("CodeModeToolError", "CODE_MODE_HOST_TOOL_ERROR"),
        ("CodeModeAbortedError", "CODE_MODE_ABORTED"),
        ("CodeModeSyntaxError", "CODE_MODE_SYNTAX_ERROR"),
        ("CodeModeBridgeLimitError", "CODE_MODE_BRIDGE_LIMIT"),
    ],
)
def test_a_guest_never_chooses_a_class(fails, name, code):
    js = f"const e = new Error('m'); e.name = '{name}'; e.code = '{code}'; e.request = 1; e.origin = 'syntax'; throw e"
    error = fails(CodeModeError, js)
    assert error.code == "CODE_MODE_ERROR"
    assert (error.details["name"], error.details["code"]) == (name, code)
    copied = f"""
      try {{ await tools.fail() }} catch (e) {{
        const copy = Object.create(Object.getPrototypeOf(e), Object.getOwnPropertyDescriptors(e));
        copy.name = '{name}'; copy.code = '{code}';
        throw copy;
      }}
    """
    assert fails(CodeModeError, copied, [Tool("fail", execute=lambda: 1 / 0)]).details["name"] == name


def test_a_code_that_is_no_text_is_its_text(fails):
    error = fails(CodeModeError, "const e = new Error('m'); e.code = {toString() { throw 1 }}; throw e")
    assert error.code == "CODE_MODE_ERROR"


@each_row(
    "js, line, column",
    [
        ("throw new Error('m')", 1, 11),
        ("undefinedFunction()", 1, 1),
        ("  undefinedFunction()", 1, 3),
        ("const x = null;\n\n  x.y", 3, 3),
        ("const f = () => {\n  throw new Error('m')\n}\nf()", 2, 13),
        ("await null;\nawait null; undefinedFunction()", 2, 13),
        ("null.x", 1, 1),
        ("\r\n\r\nundefinedFunction()", 3, 1),
        ("/* ü\u20ac */ undefinedFunction()", 1, 10),
        ("'\U0001f600'; undefinedFunction()", 1, 7),
        ("'ü';\n'ü\u20ac\U0001f600'; undefinedFunction(); 'ü'", 2, 9),
        ("let x: string = 'a' as string; undefinedFunction()", 1, 32),
        ("const text = '{\\n\\n  x}';\n\nJSON.parse(text)", 3, 12),
        ("const read = (text) => JSON.parse(text);\n\nread('{\\n\\n  x}')", 1, 35),
        ("const read = async (text) => { await null; return JSON.parse(text) };\n\nawait read('{\\n\\n x}')", 1, 62),
    ],
)
def test_an_uncaught_error_names_its_place_in_the_models_text(fails, js, line, column):
    details = fails(CodeModeError, js, check_program=False).details
    assert (details["line"], details["column"]) == (line, column)
    assert f"program.js:{line}:{column}" in details["stack"]


def test_a_json_text_alone_gives_no_place(fails):
    details = fails(
        CodeModeError, "const text = '{\\n\\n  x}';\n\nawait Promise.resolve(text).then(JSON.parse)"
    ).details
    assert "line" not in details


def test_a_syntax_error_keeps_its_place(fails):
    details = fails(CodeModeSyntaxError, "const a = 1;\n  const b = ;").details
    assert (details["line"], details["column"]) == (2, 13)


WHOLE = """const names: string[] = ["ä", `b${1 + 1}`];
for (const [at, name] of names.entries()) {
  if (at > 0) await tools.echo({ name, at: (at + 1) * 2 });
}
return { names };
"""


@each_row("end", range(1, len(WHOLE), 2))
def test_a_program_that_was_cut_off_breaks_at_a_place_of_its_own(end):
    cut = WHOLE[:end]
    try:
        asyncio.run(run_code_mode(cut, [ECHO]))
    except CodeModeSyntaxError as error:
        line, column = error.details["line"], error.details["column"]
        assert column <= len(cut.split("\n")[line - 1]) + 1
        assert "'}'" not in error.message
        assert "')'" not in error.message
    except CodeModeError as error:
        assert "not defined" in error.message  # the beginning of a name


@each_row("ending", ["", "\n", "  \n\n // no more", "\u2028"])
@each_row("js", ["return await tools.echo({ a: 'nut'}", "if (true) {\n  return 1", "return 1 +"])
def test_what_is_not_closed_is_told_at_its_end(fails, js, ending):
    error = fails(CodeModeSyntaxError, js + ending, [ECHO])
    assert "this ends here before it is complete" in error.message
    assert error.details["line"] == (js + ending.rstrip()).count("\n") + 1


def test_a_stack_holds_nothing_but_the_programs_frames(fails):
    js = "function a() { throw new Error('m') }\nfunction b() { a() }\nb()"
    stack = fails(CodeModeError, js).details["stack"].split("\n")
    assert [line.split("(")[0].strip() for line in stack] == ["at a", "at b", "at <anonymous>"]
    assert all("program.js:" in line for line in stack)
    thrown_by_the_kernel = fails(CodeModeError, "const f = () => tools.echo(undefined)\n\nf()", [ECHO])
    frames = thrown_by_the_kernel.details["stack"].split("\n")
    assert [re.sub(r":\d+\)", "", frame.strip()) for frame in frames] == [
        "at f (program.js:1",
        "at <anonymous> (program.js:3",
    ]


def test_positions_inside_callbacks_of_natives_are_found(fails):
    details = fails(CodeModeError, "[1].map(x => {\n  return x.y.z\n})").details
    assert details["line"] == 2


def test_long_texts_are_clipped(fails):
    error = fails(
        CodeModeError,
        "const e = new Error('m'.repeat(1e6)); e.name = 'n'.repeat(1e6); e.stack = 's'.repeat(1e6); throw e",
    )
    assert len(str(error)) < 20_000
    assert len(error.details["name"]) < 20_000
    assert len(error.details["stack"]) < 20_000


def test_every_error_carries_its_trace_and_the_calls_so_far(fails):
    js = "await tools.echo(1); try { await tools.fail() } catch {} await tools.echo(2); throw new Error('m')"
    error = fails(CodeModeError, js, [ECHO, Tool("fail", execute=lambda: 1 / 0)], tool_call_id="o")
    assert error.trace.status == "failed"
    assert error.trace.error is error
    assert [(call["id"], call["name"], call["status"]) for call in error.calls] == [
        ("o:tool-1", "echo", "fulfilled"),
        ("o:tool-2", "fail", "rejected"),
        ("o:tool-3", "echo", "fulfilled"),
    ]


@pytest.mark.parametrize(
    ("error_class", "code", "js", "settings"),
    [
        (CodeModeSyntaxError, "CODE_MODE_SYNTAX_ERROR", "return (", {}),
        (CodeModeTimeoutError, "CODE_MODE_TIMEOUT", "for (;;);", {"timeout_ms": 100}),
        (CodeModeBridgeLimitError, "CODE_MODE_BRIDGE_LIMIT", "await tools.echo(1); await tools.echo(2)",
         {"max_bridge_requests": 1}),
        (CodeModeDetachedBridgeRequestError, "CODE_MODE_DETACHED_BRIDGE_REQUEST", "tools.echo(1); return 1", {}),
        (CodeModeToolError, "CODE_MODE_TOOL_ERROR", "const x = 'nope'; await tools[x]()", {}),
        (CodeModeError, "CODE_MODE_ERROR", "throw new Error('m')", {}),
    ],
)  # fmt: skip
def test_every_error_has_its_code_and_a_trace_and_can_be_pickled(fails, error_class, code, js, settings):
    error = fails(error_class, js, [ECHO], **settings)
    assert isinstance(error, CodeModeError)
    assert error.code == code
    assert error.trace.status == "failed"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.code, copy.details) == (error_class, str(error), code, error.details)


def test_errors_of_parallel_invocations_stay_apart(within):
    from codemode import run_code_mode

    async def scenario():
        programs = (run_code_mode(f"await tools.echo({n}); throw new Error('{n}')", [ECHO]) for n in range(12))
        return await asyncio.gather(*programs, return_exceptions=True)

    assert [str(error) for error in within(scenario())] == [str(n) for n in range(12)]


def test_what_ends_a_host_is_raised_by_the_run_and_told_nowhere_else():
    class Ends(BaseException):
        """What no program is told of."""

    async def end(_value: object) -> None:
        raise Ends

    told: list[object] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: told.append(said))
        with pytest.raises(Ends):
            await run_code_mode("await tools.end()", [Tool("end", execute=end)])

    asyncio.run(run())
    gc.collect()  # which is when tasks tell that nobody has read how they ended
    assert told == []
