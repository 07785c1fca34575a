"""Hooks and the trace: what they are told, in which order, and that they change nothing (A147 to A153)."""

from __future__ import annotations

import asyncio

import pytest

from codemode import CodeModeError, CodeModeTimeoutError, CodeModeToolError, Tool
from codemode.errors import CodeModeSyntaxError
from codemode.types import Trace


async def echo(value):
    return value


def fail(value):
    raise RuntimeError("/secret/path")


TOOLS = [Tool("echo", execute=echo), Tool("fail", execute=fail)]
HOOKS = ("on_nested_tool_call", "on_nested_tool_result", "on_console", "on_trace")


def listening(record, *hooks):
    return {"lifecycle": dict.fromkeys(hooks or HOOKS, record)}


def shape(event):
    return type(event).__name__.removesuffix("Event"), getattr(event, "tool_name", None)


def test_events_come_in_the_order_of_what_happened(run):
    seen = []
    js = "console.log('a'); await tools.echo(1); await tools.fail(2).catch(() => 0); console.log('b')"
    run(js, TOOLS, options=listening(seen.append))
    assert [shape(event) for event in seen] == [
        ("Console", None),
        ("NestedToolCall", "echo"),
        ("NestedToolResult", "echo"),
        ("NestedToolCall", "fail"),
        ("NestedToolResult", "fail"),
        ("Console", None),
        ("Trace", None),
    ]


def test_events_tell_sizes_ids_and_times(run):
    seen = []
    run("await tools.echo({a: 'ü'})", TOOLS, options=listening(seen.append), tool_call_id="outer")
    call, result, trace = seen
    assert (call.bridge_index, call.tool_name, call.tool_call_id) == (1, "echo", "outer:tool-1")
    assert (call.input, call.input_bytes, call.replayed) == ({"a": "ü"}, len('{"a":"ü"}'.encode()), False)
    assert (result.status, result.output, result.error) == ("fulfilled", {"a": "ü"}, None)
    assert result.duration_ms >= 0
    assert result.completed_at_ms >= result.started_at_ms == call.started_at_ms
    assert call.outer_tool_call_id == trace.outer_tool_call_id == "outer"
    assert call.invocation_id == result.invocation_id == trace.invocation_id
    assert trace.bridge_requests == (result,)
    assert result.to_dict()["toolCallId"] == "outer:tool-1"
    assert trace.to_dict()["bridgeRequests"][0]["toolName"] == "echo"


def test_the_output_is_counted_in_utf_8(run):
    seen = []
    run("await tools.echo('ü\u20ac')", TOOLS, options=listening(seen.append, "on_nested_tool_result"))
    assert seen[0].output_bytes == len('"ü\u20ac"'.encode())


def test_a_rejected_call_carries_the_hosts_own_error(run):
    seen = []
    run("await tools.fail(1).catch(() => 0)", TOOLS, options=listening(seen.append, "on_nested_tool_result"))
    (result,) = seen
    assert (result.status, result.output, result.output_bytes) == ("rejected", None, None)
    assert str(result.error.__cause__) == "/secret/path"
    assert result.to_dict()["error"]["code"] == "CODE_MODE_HOST_TOOL_ERROR"


def test_unknown_tools_are_events_too(run):
    seen = []
    run("const n = 'nope'; await tools[n](1).catch(() => 0)", TOOLS, options=listening(seen.append))
    assert [shape(event) for event in seen] == [
        ("NestedToolCall", "nope"),
        ("NestedToolResult", "nope"),
        ("Trace", None),
    ]


def test_refused_calls_and_catalog_questions_are_no_events(run):
    seen = []
    js = "await tools.$search('x'); await tools.echo(1); await tools.echo(2).catch(() => 0)"
    run(js, TOOLS, options=listening(seen.append), max_bridge_requests=1)
    assert [shape(event) for event in seen] == [
        ("NestedToolCall", "echo"),
        ("NestedToolResult", "echo"),
        ("Trace", None),
    ]


def test_async_hooks_are_finished_before_the_caller_has_the_result(run):
    seen = []

    async def hook(event):
        await asyncio.sleep(0.01)
        seen.append(shape(event))

    run("await tools.echo(1)", TOOLS, options=listening(hook))
    assert seen == [("NestedToolCall", "echo"), ("NestedToolResult", "echo"), ("Trace", None)]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_hook_that_raises_changes_nothing(run, kind):
    reports = []

    def raise_now(event):
        raise ValueError("hook")

    async def raise_later(event):
        raise ValueError("hook")

    hook = raise_now if kind == "sync" else raise_later
    options = listening(hook)
    options["lifecycle"]["on_hook_error"] = lambda error, info: reports.append((str(error), info["hook"]))
    assert run("console.log(1); return await tools.echo(1)", TOOLS, options=options) == 1
    assert sorted(reports) == sorted(("hook", name) for name in HOOKS)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_the_error_hook_raises_is_swallowed(run, kind):
    def raise_now(*_):
        raise ValueError("hook")

    async def raise_later(*_):
        raise ValueError("hook")

    options = listening(raise_now)
    options["lifecycle"]["on_hook_error"] = raise_now if kind == "sync" else raise_later
    assert run("return await tools.echo(1)", TOOLS, options=options) == 1


@pytest.mark.parametrize(
    ("error_class", "js"),
    [
        (CodeModeError, "await tools.echo(1); throw new Error('m')"),
        (CodeModeToolError, "await tools.echo(1); await tools.fail(2)"),
        (CodeModeTimeoutError, "await tools.echo(1); await tools.late(2); for (;;);"),
    ],
)
def test_a_failed_run_has_one_trace_with_its_error(fails, error_class, js, passing_time):
    traces, tools = [], [*TOOLS, Tool("late", execute=lambda value: passing_time.skip(61))]
    error = fails(error_class, js, tools, options=listening(traces.append, "on_trace"), timeout_ms=60_000)
    (trace,) = traces
    assert isinstance(trace, Trace)
    assert trace is error.trace
    assert (trace.status, trace.error) == ("failed", error)
    assert trace.bridge_requests[0].tool_name == "echo"
    assert "failed in" in trace.to_text()


def test_a_program_that_never_ran_has_a_trace(fails):
    traces = []
    error = fails(CodeModeSyntaxError, "return (", TOOLS, options=listening(traces.append, "on_trace"))
    assert traces == [error.trace]


def test_the_trace_lists_calls_in_the_order_in_which_they_ended(run):
    gate = asyncio.Event()

    async def slow(value):
        await gate.wait()

    async def quick(value):
        gate.set()

    traces = []
    tools = [Tool("slow", execute=slow), Tool("quick", execute=quick)]
    run("await Promise.all([tools.slow(1), tools.quick(2)])", tools, options=listening(traces.append, "on_trace"))
    assert [(r.tool_name, r.bridge_index) for r in traces[0].bridge_requests] == [("quick", 2), ("slow", 1)]
    lines = traces[0].to_text().split("\n")
    assert lines[0].startswith("completed in ")
    assert "quick" in lines[1]
    assert "fulfilled" in lines[2]


def test_hooks_run_even_for_a_caller_that_was_cancelled(within):
    from codemode import run_code_mode

    async def scenario():
        traces, started = [], asyncio.Event()

        async def wait(value):
            started.set()
            await asyncio.Event().wait()

        program = run_code_mode(
            "await tools.wait(1)", [Tool("wait", execute=wait)], options=listening(traces.append, "on_trace")
        )
        task = asyncio.create_task(program)
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return traces

    (trace,) = within(scenario())
    assert trace.error.code == "CODE_MODE_ABORTED"
