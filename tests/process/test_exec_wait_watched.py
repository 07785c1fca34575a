"""What hooks and an audit hear of a program of exec: once, whatever it loses at its rests, and tools by their ids."""

from __future__ import annotations

from typing import Any

import pytest

from codemode import CallContext, Tool, audit_log
from codemode.surfaces.exec_wait.exec_wait_tools import create_exec_wait_tools

CODE = """await tools.search("echo"); await tools.describe("host:core:echo"); console.log("begun");
    await tools.echo(1); await yield_control(); await tools.echo(2); return 3"""


@pytest.mark.parametrize("max_warm_runs", [4, 0])
def test_a_program_is_heard_once_over_all_its_rests(within, pool, max_warm_runs):
    records: list[Any] = []
    lines: list[Any] = []
    traces: list[Any] = []
    lifecycle = audit_log(records.append, lifecycle={"on_console": lines.append, "on_trace": traces.append})
    echo = Tool("echo", execute=lambda value, _: value)
    options = {"maxWarmRuns": max_warm_runs}
    pair = create_exec_wait_tools([echo], options, settings={"lifecycle": lifecycle}, pool=pool)

    async def main():
        rest = await pair.exec.execute({"code": CODE}, call=CallContext(conversation_id="s", tool_call_id="c"))
        assert traces == []
        last = await pair.wait.execute(
            {"runId": rest["runId"]}, call=CallContext(conversation_id="s", tool_call_id="d")
        )
        await pair.aclose()
        return last

    assert within(main())["value"] == 3
    assert [one["event"] for one in records] == [
        "execution_started", "search", "describe", "call_started", "call_succeeded",
        "call_started", "call_succeeded", "execution_succeeded",
    ]  # fmt: skip
    assert {one["toolName"] for one in records if "toolName" in one} == {"host:core:echo"}
    assert ([one.text for one in lines], len(traces)) == (["begun"], 1)
    assert [one.status for one in traces[0].bridge_requests] == ["fulfilled", "fulfilled"]
