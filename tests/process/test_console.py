"""Console output: captured per invocation, in order, capped, and never on the host's own streams."""

from __future__ import annotations

import asyncio

import pytest
from suite import each_row

from codemode import CodeModeError, CodeModeTimeoutError, Tool, run_code_mode


def lines(run, js, tools=(), **limits):
    """Run a program and return level and text of what it wrote."""
    seen = []
    run(
        js, tools, options={"lifecycle": {"on_console": lambda event: seen.append((event.level, event.text))}}, **limits
    )
    return seen


def test_levels_and_order_are_kept(run):  # issue 2; A167 superseded
    js = "console.log(1); console.info(2); console.warn(3); console.error(4); console.debug(5); console.log(6)"
    levels = ["log", "info", "warn", "error", "debug", "log"]
    assert lines(run, js) == [(level, str(n)) for n, level in enumerate(levels, 1)]


@each_row(
    "arguments, text",
    [
        ("", ""),
        ("'a', 'b'", "a b"),
        ("1, true, null, undefined", "1 true null undefined"),
        ("{a: 1}, [1, [2]]", '{"a":1} [1,[2]]'),
        ("new Error('m')", "Error: m"),
        ("new TypeError('m')", "TypeError: m"),
        ("1n", "1"),
        ("Symbol('s')", "Symbol()"),
        ("'line\\nbreak\\u0000\\u2028'", "line\nbreak\0\u2028"),
        ("'\\ud800'", "\ufffd"),
        ("(() => { const a = {}; a.a = a; return a })()", "[object Object]"),
        ("{toJSON() { throw 1 }, toString() { throw 2 }}", "[unprintable]"),
        ("new Proxy({}, {get() { throw 1 }})", "[unprintable]"),
        ("{a: 1n}", '{"a":1}'),
        ("new Map([[1, 2]])", "{}"),
        ("'%s %d', 'x', 1", "%s %d x 1"),
        ("NaN, -0, Infinity", "NaN 0 Infinity"),
    ],
)
def test_values_are_written_as_text(run, arguments, text):
    assert lines(run, f"console.log({arguments})") == [("log", text)]


def test_output_between_calls_keeps_its_place(run):
    seen = []

    async def note(value):
        seen.append(value)

    options = {"lifecycle": {"on_console": lambda event: seen.append(event.text)}}
    js = "console.log('a'); await tools.note(1); console.log('b'); await tools.note(2); console.log('c')"
    run(js, [Tool("note", execute=note)], options=options)
    assert seen == ["a", 1, "b", 2, "c"]


def test_output_before_an_error_is_kept(fails):
    error = fails(CodeModeError, "console.log('before'); await null; throw new Error('m')")
    assert [(event.level, event.text) for event in error.trace.console] == [("log", "before")]


def test_output_before_a_timeout_is_kept(fails, passing_time):
    js = "console.log('before'); await tools.t(); for (;;);"
    error = fails(CodeModeTimeoutError, js, [Tool("t", execute=lambda: passing_time.skip(61))], timeout_ms=60_000)
    assert [event.text for event in error.trace.console] == ["before"]


def test_nothing_reaches_the_hosts_streams(run, capfd):
    run("console.log('x'); console.error('y'); console.warn('z'); console.info(1); console.debug(2)")
    with pytest.raises(CodeModeError):
        run("console.error('x'); throw new Error('y')")
    with pytest.raises(CodeModeError):
        run("const a = []; for (;;) a.push(new Array(1000).fill(1))", memory_limit_bytes=8 << 20)
    assert capfd.readouterr() == ("", "")


def test_output_is_cut_at_its_limit(run):
    # Each line counts its bytes and one for the line break.
    exactly = lines(run, "console.log('ü'.repeat(4)); console.log('x'.repeat(9)); ", max_console_bytes=19)
    assert exactly == [("log", "ü" * 4), ("log", "x" * 9)]
    over = lines(run, "console.log('ü'.repeat(4)); console.error('x'.repeat(9)); console.log(1)", max_console_bytes=18)
    assert over[0] == ("log", "ü" * 4)
    assert len(over) == 2
    assert over[1][0] == "warn"
    assert "max_console_bytes is 18" in over[1][1]


def test_a_flood_is_cut_and_the_program_goes_on(run):
    seen = []
    options = {"lifecycle": {"on_console": seen.append}}
    assert run("for (let i = 0; i < 1e5; i++) console.log('flood ' + i); return 'end'", options=options) == "end"
    assert sum(len(event.text) + 1 for event in seen[:-1]) <= 65536
    assert seen[-1].level == "warn"


def test_a_long_line_is_clipped(run):
    ((_, text),) = lines(run, "console.log('x'.repeat(1e6))")
    assert len(text) < 10_000
    assert text.endswith("\u2026")


def test_many_arguments_are_clipped(run):
    ((_, text),) = lines(run, "console.log(...Array.from({length: 10000}, (_, i) => i))")
    assert len(text) < 10_000


def test_each_invocation_has_its_own_output(within):
    async def invoke(name):
        seen = []
        options = {"lifecycle": {"on_console": lambda event: seen.append(event.text)}}
        tools = [Tool("t", execute=lambda: None)]
        await run_code_mode(f"console.log('{name}'); await tools.t(); console.log('{name}')", tools, options=options)
        return seen

    async def scenario():
        return await asyncio.gather(*(invoke(name) for name in "abcd"))

    assert within(scenario()) == [[name, name] for name in "abcd"]


@pytest.mark.parametrize(
    "js",
    [
        "console.log = () => 1",
        "delete console.log",
        "console = {}",
        "Object.defineProperty(console, 'log', {value: 1})",
    ],
)
def test_the_console_cannot_be_replaced(run, js):
    assert lines(run, f"try {{ {js} }} catch {{}} console.log('still')") == [("log", "still")]


def test_output_of_leftover_jobs_is_dropped(run):
    js = "Promise.resolve().then(() => {}).then(() => {}).then(() => {}).then(() => console.log('late')); return 1"
    assert lines(run, js) == []


def test_console_methods_work_detached(run):
    assert lines(run, "const {log} = console; log('a'); [1].forEach(console.log)") == [("log", "a"), ("log", "1 0 [1]")]
