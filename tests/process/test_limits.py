"""Every limit of size and number at its exact boundary."""

from __future__ import annotations

import asyncio
import json

import pytest
from suite import each_row, full_only

from codemode import Tool
from codemode.errors import CodeModeBridgeLimitError, CodeModeSerializationError, CodeModeSourceTooLargeError


async def echo(value):
    return value


ECHO = Tool("echo", execute=echo)


def giving(value):
    return Tool("give", execute=lambda: value)


# --- sizes ---


@pytest.mark.parametrize("filler", ["x", "ü", "\u20ac", "\U0001f600"])
def test_a_source_may_be_exactly_as_large_as_allowed(run, fails, filler):
    js = f"return '{filler * 20}'"
    size = len(js.encode())
    assert run(js, max_source_bytes=size) == filler * 20
    error = fails(CodeModeSourceTooLargeError, js, max_source_bytes=size - 1)
    assert error.code == "CODE_MODE_SOURCE_TOO_LARGE"
    assert error.details == {"bytes": size, "max_bytes": size - 1}


@pytest.mark.parametrize("filler", ["ü", "\u0001", *full_only("x", '"', "\\", "\n")])
def test_the_largest_source_of_any_text_reaches_the_worker(run, filler):
    js = "return 1 //" if filler != "\n" else "return 1"
    js += filler * ((1_000_000 - len(js)) // len(filler.encode()))
    assert run(js, max_source_bytes=1_000_000, timeout_ms=20_000) == 1


TEXTS = [
    ("'x'.repeat(98)", "x" * 98),
    ("'\\u00fc'.repeat(49)", "ü" * 49),
    ("'\\u20ac'.repeat(32) + 'xx'", "\u20ac" * 32 + "xx"),
    ("'\\u{1F600}'.repeat(24) + 'xx'", "\U0001f600" * 24 + "xx"),
    ("'\"'.repeat(49)", '"' * 49),
    ("'\\\\'.repeat(49)", "\\" * 49),
    ("'\\n'.repeat(49)", "\n" * 49),
    ("'\\u0001'.repeat(16) + 'xx'", "\u0001" * 16 + "xx"),
    ("'\\ud800'.repeat(16) + 'xx'", "\ufffd" * 16 + "xx"),
    ("'\\u2028'.repeat(32) + 'xx'", "\u2028" * 32 + "xx"),
]


@each_row("js, value", TEXTS)
def test_a_result_may_be_exactly_as_large_as_allowed(run, fails, js, value):
    # Each is 100 bytes as JSON.stringify writes it.
    assert run(f"return {js}", max_result_bytes=100) == value
    error = fails(CodeModeSerializationError, f"return {js}", max_result_bytes=99)
    assert error.code == "CODE_MODE_SERIALIZATION_ERROR"
    assert error.details == {"bytes": 100, "max_bytes": 99}


@each_row("js, value", TEXTS)
def test_a_tool_input_may_be_exactly_as_large_as_allowed(run, fails, js, value):
    program = f"return await tools.echo({js})"
    assert run(program, [ECHO], max_tool_input_bytes=100) == value
    error = fails(CodeModeSerializationError, program, [ECHO], max_tool_input_bytes=99)
    assert error.code == "CODE_MODE_SERIALIZATION_ERROR"
    assert (error.details["bytes"], error.details["max_bytes"]) == (100, 99)
    assert "'echo'" in str(error)


@each_row("value", [value for _, value in TEXTS if "\ufffd" not in value] + [["x" * 30] * 3])
def test_a_tool_output_may_be_exactly_as_large_as_allowed(run, fails, value):
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    program = "return await tools.give()"
    assert run(program, [giving(value)], max_tool_output_bytes=size) == value
    error = fails(CodeModeSerializationError, program, [giving(value)], max_tool_output_bytes=size - 1)
    assert (error.details["bytes"], error.details["max_bytes"]) == (size, size - 1)
    assert "'give'" in str(error)


@pytest.mark.parametrize(
    ("js", "name"),
    [("tools.echo('x'.repeat(99))", "echo"), ("tools.give()", "give")],
)
def test_too_large_a_value_can_be_caught(run, js, name):
    program = f"try {{ await {js} }} catch (e) {{ return [e.name, e.code, e.message.includes('{name}'), e.details] }}"
    expected = ["CodeModeSerializationError", "CODE_MODE_SERIALIZATION_ERROR", True, None]
    tools = [ECHO, giving("x" * 99)]
    assert run(program, tools, max_tool_input_bytes=50, max_tool_output_bytes=50) == expected


def test_the_default_sizes_are_those_of_the_original(run, fails):
    assert len(run("return 'x'.repeat((1 << 20) - 2)")) == (1 << 20) - 2
    assert fails(CodeModeSerializationError, "return 'x'.repeat((1 << 20) - 1)").details["max_bytes"] == 1 << 20
    assert run("return (await tools.give()).length", [giving("x" * ((4 << 20) - 2))]) == (4 << 20) - 2
    fails(CodeModeSerializationError, "return await tools.give()", [giving("x" * ((4 << 20) - 1))])


@pytest.mark.parametrize("unit", ["\u20ac", '"', "\u0001", "\U0001f600"])
def test_the_largest_result_of_any_text_reaches_the_host(run, unit):
    width = len(json.dumps(unit, ensure_ascii=False).encode()) - 2
    count = ((1 << 20) - 2) // width
    assert run(f"return {json.dumps(unit)}.repeat({count})") == unit * count


# --- counts ---


def test_256_calls_are_allowed_and_no_more(run, fails):
    program = "let n = 0; for (let i = 0; i < COUNT; i++) { await tools.echo(i); n++ } return n"
    assert run(program.replace("COUNT", "256"), [ECHO]) == 256
    error = fails(CodeModeBridgeLimitError, program.replace("COUNT", "257"), [ECHO])
    assert error.code == "CODE_MODE_BRIDGE_LIMIT"
    assert (error.details["limit"], error.details["max"]) == ("max_bridge_requests", 256)
    assert len(error.trace.bridge_requests) == 256


def test_as_many_as_32_calls_at_once_are_allowed(run, fails):
    program = "return (await Promise.all(Array.from({length: COUNT}, (_, i) => tools.echo(i)))).length"
    assert run(program.replace("COUNT", "32"), [ECHO]) == 32
    error = fails(CodeModeBridgeLimitError, program.replace("COUNT", "33"), [ECHO])
    assert (error.details["limit"], error.details["max"]) == ("max_in_flight_bridge_requests", 32)


def test_parallel_calls_run_32_at_the_same_time(run):
    barrier = asyncio.Barrier(32)

    async def meet(value):
        await barrier.wait()
        return value

    program = "return await Promise.all(Array.from({length: 32}, (_, i) => tools.meet(i)))"
    assert run(program, [Tool("meet", execute=meet)]) == list(range(32))


def test_a_refused_call_is_caught_and_costs_nothing(run):
    program = """
      const refused = [];
      const all = await Promise.allSettled(Array.from({length: 6}, (_, i) => tools.echo(i)));
      for (const one of all) if (one.status === 'rejected') refused.push([one.reason.name, one.reason.code]);
      let more = 0;
      for (let i = 0; i < 10; i++) try { await tools.echo(i); more++ } catch (e) { refused.push(e.code) }
      return [refused, more];
    """
    seen = []
    options = {"lifecycle": {"on_nested_tool_call": seen.append}}
    refused, more = run(program, [ECHO], options=options, max_in_flight_bridge_requests=4, max_bridge_requests=10)
    assert refused[:2] == [["CodeModeBridgeLimitError", "CODE_MODE_BRIDGE_LIMIT"]] * 2
    assert (more, refused[2:]) == (6, ["CODE_MODE_BRIDGE_LIMIT"] * 4)
    assert [event.tool_call_id.rpartition(":")[2] for event in seen] == [f"tool-{n}" for n in range(1, 11)]


def test_capacity_comes_back_as_calls_settle(run):
    program = """
      let most = 0, now = 0;
      const call = async (i) => { most = Math.max(most, ++now); await tools.echo(i); now-- };
      const worker = async () => { for (let i = 0; i < 20; i++) await call(i) };
      await Promise.all([worker(), worker(), worker(), worker()]);
      return most;
    """
    assert run(program, [ECHO], max_in_flight_bridge_requests=4) == 4


def test_as_many_as_64_questions_to_the_catalog_are_allowed(run, fails):
    program = "for (let i = 0; i < COUNT; i++) await tools.$search('echo'); return await tools.echo('still')"
    assert run(program.replace("COUNT", "64"), [ECHO], max_bridge_requests=1) == "still"
    error = fails(CodeModeBridgeLimitError, program.replace("COUNT", "65"), [ECHO])
    assert (error.details["limit"], error.details["max"]) == ("max_catalog_requests", 64)
