"""A call that is repeated from a record is shown with the time that it took when it was made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codemode import ModuleServer, Tool, create_code_mode_tool, create_modules_tool

LOOK = Tool("look", execute=lambda value: {"at": value})
BROKEN = Tool("broken", execute=lambda _: 1 / 0)
REFUND = Tool("refund", execute=lambda value: value, needs_approval=True)
JS = "await tools.look(1); await tools.broken(2).catch(() => 0); return await tools.refund(3)"


def durations(trace: Any) -> dict[str, float]:
    return {one.tool_name: round(one.duration_ms, 3) for one in trace.bridge_requests if one.status != "interrupted"}


@pytest.mark.parametrize("seals", [False, True], ids=["open", "sealed"])
def test_a_resume_shows_the_times_of_the_first_run(seals: bool):
    traces: list[Any] = []
    options = {
        "approval": {"mode": "interrupt"},
        "lifecycle": {"on_trace": traces.append},
        "continuation": {"keys": ["k" * 32], "seal": seals},
    }
    tool = create_code_mode_tool([LOOK, BROKEN, REFUND], options)
    interrupt = tool.execute_sync({"js": JS})
    assert tool.resume_sync(json.loads(json.dumps(interrupt.to_dict())), {"approved": True}) == 3
    first, second = map(durations, traces)
    assert first.keys() == {"look", "broken"}
    assert {name: second[name] for name in first} == pytest.approx(first, abs=0.002)
    replayed = [one.tool_name for one in traces[1].bridge_requests if one.replayed]
    assert replayed == ["look", "broken"]
    for name, lasted in first.items():
        (line,) = [line for line in traces[1].to_text().split("\n") if f"  {name} " in line]
        assert f"+{lasted:7.1f} ms" in line


def test_the_answer_of_a_module_has_them_too():
    run = create_modules_tool([ModuleServer("shop", [LOOK, REFUND])], settings={"approval": {"mode": "interrupt"}})
    code = """
    import { look, refund } from "@codemode/servers/shop";
    await look({ a: 1 });
    globalThis.__codemode_result__ = await refund({ a: 2 });
    """
    interrupt = run.execute_sync({"code": code})
    answer = run.resume_sync(interrupt, {"approved": True})
    (look, _refund) = answer["toolTrace"]
    (replayed,) = [one for one in answer.trace.bridge_requests if one.replayed]
    assert look["durationMs"] == round(replayed.duration_ms)
    assert replayed.completed_at_ms - replayed.started_at_ms < 1000
