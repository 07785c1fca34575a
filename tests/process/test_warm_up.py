"""A spare worker is warmed up before it says hello; a program must find no trace of that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from codemode import CallContext, CodeModeOptions, WorkerPool, run_code_mode, run_code_mode_sync
from codemode.trace.trace import Trace
from codemode.workers import worker_inventory


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """A pool that warms up every spare."""
    with pytest.MonkeyPatch.context() as patch, WorkerPool({"max_workers": 1, "spare_workers": 1}) as pool:
        patch.setattr(worker_inventory, "MIN_WARM_UP_INTERVAL_SECONDS", float("-inf"))
        assert run_code_mode_sync("return 1", [], pool=pool) == 1
        yield pool


async def echo(value=None):
    return value


@pytest.mark.parametrize(("names", "ends"), [(512, "returned"), (513, "RangeError")])
def test_the_names_of_tools_are_counted_from_none(run, pool, names, ends):
    js = f"try {{ for (let i = 0; i < {names}; i++) tools['t' + i]; return 'returned' }} catch (e) {{ return e.name }}"
    assert run(js, [], pool=pool) == ends


def test_calls_and_console_are_counted_from_none(within, pool):
    traces: list[Trace] = []
    options = CodeModeOptions(
        execution_policy={"max_bridge_requests": 3, "max_in_flight_bridge_requests": 3, "max_console_bytes": 4},
        lifecycle={"on_trace": traces.append},
    )
    js = "console.log('abc'); return (await Promise.all([1, 2, 3].map((value) => tools.echo({ value })))).length"
    assert within(run_code_mode(js, [echo], options=options, call=CallContext(tool_call_id="outer"), pool=pool)) == 3
    assert [request.tool_call_id for request in traces[0].bridge_requests] == [f"outer:tool-{n}" for n in (1, 2, 3)]
    assert [line.text for line in traces[0].console] == ["abc"]


def test_globals_and_clock_are_fresh(run, pool):
    js = "return [typeof n, typeof rehearse, Object.keys(globalThis).length, typeof fetch, Date.now() > 1e12]"
    assert run(js, [], pool=pool) == ["undefined", "undefined", 0, "undefined", True]


def test_nothing_of_the_warm_up_is_left(run, pool):
    js = """
    globalThis.mine = 1;
    const gone = [typeof callTool, typeof codecallContext, typeof rehearsed, typeof globalThis.process];
    return [...gone, mine, arguments.length,
      (function () { return this === globalThis })()];
    """
    assert run(js, [], pool=pool) == ["undefined"] * 4 + [1, 0, True]
    assert run("return Array(20).fill([[[[[[[[[[1]]]]]]]]]])", [], pool=pool) == [[[[[[[[[[[1]]]]]]]]]]] * 20
