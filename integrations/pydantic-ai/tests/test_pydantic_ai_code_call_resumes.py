"""Who may go on with a paused script or direct call behind CodeCall, how often, where, and over which tools."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from code_call_desk import DIRECT_REFUND, ONE_REFUND, REFUNDS, Desk, goes_on, stored, waiting, within
from codemode_pydantic_ai import CodeCallToolset, CodeModeToolset, answer
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, meta, program, script
from warm_python import WarmPython

from codemode import CodeModeProtocolError
from codemode.stores import SqliteInterruptStore


def test_the_same_answers_repeat_and_other_ones_are_refused() -> None:
    for call in (
        script("return callTool('refund', { order: 'a' })"),
        meta("invoke", tool="refund", input={"order": "a"}),
    ):
        desk, steps = Desk(), Script(call, "done", "done")
        agent = desk.agent(steps)
        paused = within(agent.run("go"))
        (one,) = waiting(paused)
        for _ in range(2):
            goes_on(agent, paused, {one: True})
            assert steps.returned() == {"status": "ok", "result": "refunded a: 500"}
        with pytest.raises(UserError, match=r"answered before: .* other answers"):
            goes_on(agent, paused, {one: False})
        assert desk.did == [("refund", "a", 500)]


def test_two_who_answer_at_once_run_it_once() -> None:
    desk, steps = Desk(), Script(DIRECT_REFUND, "done", "done")
    agent = desk.agent(steps)
    paused = within(agent.run("go"))
    (one,) = waiting(paused)

    async def race() -> list[Any]:
        results = DeferredToolResults(approvals={one: True})
        runs = [
            agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=results) for _ in range(2)
        ]
        return await asyncio.gather(*runs, return_exceptions=True)

    ended = within(race())
    assert any(getattr(one, "output", None) == "done" for one in ended), ended
    assert desk.did == [("refund", "a", 500)]


OTHER_PROCESS = """
import json, sys
import codemode.stores
from pydantic_ai import DeferredToolResults
from pydantic_ai.messages import ModelMessagesTypeAdapter
from scripted import Script
from code_call_desk import Desk
codemode.set_continuation_signing_key("a key that both know")
given = json.load(sys.stdin)
desk, steps = Desk(), Script("done")
settings = {"continuation": {"guard": codemode.stores.SqliteInterruptStore(given["guard"]).guard}}
result = desk.agent(steps, settings=settings).run_sync(
    message_history=ModelMessagesTypeAdapter.validate_python(given["messages"]),
    deferred_tool_results=DeferredToolResults(approvals={one: True for one in given["waiting"]}),
)
print(json.dumps([result.output, [steps.returned(one) for one in ("outer", "direct")], desk.did]))
"""


@pytest.mark.full
def test_another_process_goes_on_and_no_process_does_so_again(pydantic_ai_python: WarmPython, tmp_path: Path) -> None:
    guard = str(tmp_path / "guard.sqlite")
    settings = {"continuation": {"keys": "a key that both know", "guard": SqliteInterruptStore(guard).guard}}
    calls = [*script(REFUNDS), *meta("invoke", "direct", tool="refund", input={"order": "c"})]
    desk, steps = Desk(), Script(calls, "done")
    agent = desk.agent(steps, settings=settings)
    paused = within(agent.run("go"))
    messages = ModelMessagesTypeAdapter.dump_python(paused.all_messages(), mode="json")
    given = {"messages": messages, "waiting": waiting(paused), "guard": guard}
    done = pydantic_ai_python.run("-c", OTHER_PROCESS, said=json.dumps(given), cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    output, returned, did = json.loads(done.stdout)
    assert output == "done"
    assert returned == [
        {"status": "ok", "result": [7, "refunded a: 500", "refunded b: 500"]},
        {"status": "ok", "result": "refunded c: 500"},
    ]
    assert sorted(did) == [["refund", one, 500] for one in "abc"]
    with pytest.raises(UserError, match=r"answered before: .* other answers"):
        goes_on(agent, paused, dict.fromkeys(waiting(paused), False))
    assert desk.did == [("stock", "nut")]


def test_a_resume_that_is_made_up_runs_nothing() -> None:
    desk, steps = Desk(), Script(script(REFUNDS), "done")
    agent: Agent[Any, Any] = Agent(
        steps.model,
        toolsets=[CodeCallToolset(FunctionToolset(desk.tools()))],
        output_type=[str, DeferredToolRequests],
    )
    paused = within(agent.run("go"))
    did = list(desk.did)
    results = answer(paused.output, {})
    results.metadata["outer"]["codemode"]["continuation"] = {"version": 1, "body": ["made", "up"]}
    results.metadata["outer"]["codemode"]["answers"] = {"outer:tool-2:interrupt-0": {"approved": True}}
    with pytest.raises(UserError, match="cannot resume"):
        within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=results))
    assert desk.did == did


def test_a_pause_of_one_face_does_not_go_on_under_the_other() -> None:
    desk, steps = Desk(), Script(ONE_REFUND, program("return await tools.refund({ order: 'a' })"), "x", "x")
    toolset = FunctionToolset(desk.tools())
    code_mode, code_call = (
        Agent[Any, Any](steps.model, toolsets=[one(toolset)], output_type=[str, DeferredToolRequests])
        for one in (CodeModeToolset, CodeCallToolset)
    )
    paused_call, paused_mode = within(code_call.run("go")), within(code_mode.run("go"))
    for paused, other, call in (
        (paused_call, code_mode, program("return 1")),
        (paused_mode, code_call, script("return 1")),
    ):
        history = stored(paused.all_messages())
        history[-1] = ModelResponse(parts=list(call))
        (outer,) = paused.output.metadata.values()
        results = answer(paused.output, {outer["codemode"]["requests"][0]["toolCallId"]: True})
        with pytest.raises(CodeModeProtocolError, match="was paused by"):
            within(other.run(message_history=history, deferred_tool_results=results))
    assert desk.did == []


def test_a_tool_that_has_left_the_index_does_not_run_any_more() -> None:
    for call in (
        script("return callTool('refund', { order: 'a' })"),
        meta("invoke", tool="refund", input={"order": "a"}),
    ):
        desk, steps = Desk(), Script(call, "done")
        paused = within(desk.agent(steps).run("go"))
        narrowed = desk.agent(steps, include_tools=lambda info: info.name != "refund")
        try:
            goes_on(narrowed, paused, {waiting(paused)[0]: True})
        except Exception as refused:
            assert "refund" in str(refused)
        assert desk.did == []


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_direct_call_does_not_go_on_where_there_are_none_any_more(is_lost: bool) -> None:
    desk, steps = Desk(), Script(DIRECT_REFUND, "done")
    paused = within(desk.agent(steps).run("go"))
    history = stored(paused.all_messages())
    response = history[-1]
    assert isinstance(response, ModelResponse)
    if is_lost:
        response.parts = [part for part in response.parts if getattr(part, "tool_call_id", "") != "outer"]
    results = DeferredToolResults(approvals={waiting(paused)[0]: True})
    without = desk.agent(steps, direct_calls={"enabled": False})
    within(without.run(message_history=history, deferred_tool_results=results))
    assert "codecall_invoke" in str(steps.returned())
    assert "Unknown tool" in str(steps.returned())
    assert desk.did == []


def test_a_resume_keeps_to_the_tools_that_the_script_was_allowed() -> None:
    text = "await callTool('refund', { order: 'a' }); return await callTool(['stock'][0], { product: 'nut' })"
    desk, steps = Desk(), Script(script(text, allowedTools=["refund"]), "done")
    agent = desk.agent(steps)
    paused = within(agent.run("go"))
    goes_on(agent, paused, {waiting(paused)[0]: True})
    assert steps.returned()["error"]["code"] == "ACCESS_DENIED"
    assert desk.did == [("refund", "a", 500)]
