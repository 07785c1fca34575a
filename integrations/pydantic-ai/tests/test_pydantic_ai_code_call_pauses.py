"""People and the calls behind CodeCall: what they are shown of scripts and direct calls that wait, and what runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from code_call_desk import DIRECT_REFUND, ONE_REFUND, REFUNDS, Desk, goes_on, stored, waiting, within
from codemode_pydantic_ai import CodeCallToolset
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDenied
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import FunctionToolCallEvent, ModelMessagesTypeAdapter, ModelResponse, ToolCallPart
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, meta, script

from codemode import CodeModeToolError


def test_a_script_pauses_with_all_that_waits_and_the_model_hears_of_its_own_call_alone() -> None:
    desk, steps = Desk(), Script(script(REFUNDS), "done")
    agent = desk.agent(steps)
    paused = within(agent.run("go"))
    first, second = waiting(paused)
    assert "interrupt" not in json.dumps(steps.seen[-1][0], default=repr)
    edited = ToolApproved(override_args={"order": "a", "cents": 300})
    result = goes_on(agent, paused, {first: edited, second: ToolDenied("not this one")})
    assert steps.returned() == {
        "status": "ok",
        "result": [7, "refunded a: 300", ["APPROVAL_DENIED", "not this one"]],
    }
    assert desk.did == [("stock", "nut"), ("refund", "a", 300)]
    calls = [part.tool_name for one in result.all_messages() for part in one.parts if hasattr(part, "tool_name")]
    assert calls == ["codecall_execute", "codecall_execute"]


def test_scripts_and_direct_calls_of_one_response_wait_together_and_go_on_one_by_one() -> None:
    desk = Desk()
    refund = "return callTool('refund', { order: codecallContext.order })"
    steps = Script(
        [
            *script(refund, "one", context={"order": "a"}),
            *meta("invoke", "two", tool="refund", input={"order": "b"}),
            *script(refund, "three", context={"order": "c"}),
            *meta("invoke", "four", tool="stock", input={"product": "nut"}),
        ],
        "done",
    )
    agent = desk.agent(steps)
    paused = within(agent.run("go"))
    ids = waiting(paused)
    assert [call.args_as_dict()["order"] for call in paused.output.approvals] == ["a", "b", "c"]
    paused = goes_on(agent, paused, {ids[1]: True})
    assert waiting(paused) == [ids[0], ids[2]]
    paused = goes_on(agent, paused, {ids[2]: False})
    goes_on(agent, paused, {ids[0]: True})
    assert [steps.returned(one)["status"] for one in ("one", "two", "three", "four")] == [
        "ok",
        "ok",
        "tool_error",
        "ok",
    ]
    assert desk.did == [("stock", "nut"), ("refund", "b", 500), ("refund", "a", 500)]


def test_a_direct_call_that_was_edited_into_something_wrong_is_asked_about_again() -> None:
    desk, steps = Desk(), Script(DIRECT_REFUND, "done")
    agent = desk.agent(steps)
    paused = within(agent.run("go"))
    (call,) = waiting(paused)
    again = goes_on(agent, paused, {call: ToolApproved(override_args={"order": "a", "cents": "many"})})
    (call,) = waiting(again)
    assert "cents" in again.output.metadata[call]["editRefused"]
    assert desk.did == []


def test_approving_or_denying_the_outer_call_by_its_id() -> None:
    for call in (script(REFUNDS), DIRECT_REFUND):
        desk, steps = Desk(), Script(call, "done")
        agent = desk.agent(steps)
        paused = within(agent.run("go"))
        did = list(desk.did)
        again = goes_on(agent, paused, {"outer": True})
        assert waiting(again) == waiting(paused)
        goes_on(agent, paused, {"outer": ToolDenied("forget it")})
        assert steps.returned() == "forget it"
        with pytest.raises(UserError, match=r"answered before: .* other answers"):
            goes_on(agent, paused, dict.fromkeys(waiting(paused), True))
        assert desk.did == did


def test_a_search_that_the_framework_gates_runs_once_it_is_approved() -> None:
    steps = Script(meta("search", query="money"), "done")
    agent: Agent[Any, Any] = Agent(
        steps.model,
        toolsets=[CodeCallToolset(FunctionToolset(Desk().tools())).approval_required()],
        output_type=[str, DeferredToolRequests],
    )
    paused = within(agent.run("go"))
    goes_on(agent, paused, {"outer": True})
    assert [one["name"] for one in steps.returned()["tools"]] == ["refund"]


def test_an_inline_handler_is_asked_about_the_inner_calls() -> None:
    asked: list[Any] = []

    def handle(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        asked.extend((call.tool_name, call.args_as_dict()["order"]) for call in requests.approvals)
        return requests.build_results(
            approvals={call.tool_call_id: call.args_as_dict()["order"] == "a" for call in requests.approvals}
        )

    calls = [*script(REFUNDS), *meta("invoke", "direct", tool="refund", input={"order": "c"})]
    desk, steps = Desk(), Script(calls, "done")
    within(desk.agent(steps, HandleDeferredToolCalls(handle)).run("go"))
    assert sorted(asked) == [("refund", one) for one in "abc"]
    assert steps.returned()["result"][1:] == ["refunded a: 500", ["APPROVAL_DENIED", "The tool call was denied."]]
    assert steps.returned("direct")["error"]["code"] == "APPROVAL_DENIED"
    assert sorted(desk.did) == [("refund", "a", 500), ("stock", "nut")]


def test_what_streams_shows_the_inner_calls() -> None:
    desk, steps = Desk(), Script(DIRECT_REFUND, "done")
    agent = desk.agent(steps)
    shown: list[str] = []

    async def heard(ctx: RunContext[Any], events: Any) -> None:
        async for event in events:
            shown.extend([event.part.tool_name] if isinstance(event, FunctionToolCallEvent) else [])

    paused = within(agent.run("go", event_stream_handler=heard))
    assert shown == ["codecall_invoke", "refund"]

    async def streamed() -> str:
        results = DeferredToolResults(approvals={waiting(paused)[0]: True})
        history = stored(paused.all_messages())
        async with agent.run_stream(message_history=history, deferred_tool_results=results) as stream:
            return await stream.get_output()

    assert within(streamed()) == "done"
    assert desk.did == [("refund", "a", 500)]


@pytest.mark.parametrize("call", ["execute", "invoke"])
def test_a_client_that_lost_the_outer_call_gets_it_back_without_what_the_host_gave(call: str) -> None:
    desk = Desk()
    made = {
        "execute": script("return callTool('refund', { order: 'a' })", allowedTools=["refund"]),
        "invoke": meta("invoke", tool="refund", input={"order": "a", "cents": 5}),
    }[call]
    steps = Script(made, "done")
    agent = desk.agent(steps, script_context=lambda ctx: {"secret": "of the host"})
    paused = within(agent.run("go"))
    history = stored(paused.all_messages())
    response = history[-1]
    assert isinstance(response, ModelResponse)
    response.parts = [part for part in response.parts if getattr(part, "tool_call_id", "") != "outer"]
    results = DeferredToolResults(approvals={waiting(paused)[0]: True})
    result = within(agent.run(message_history=history, deferred_tool_results=results))
    assert steps.returned()["status"] == "ok"
    (restored,) = [part for one in result.all_messages() for part in one.parts if isinstance(part, ToolCallPart)]
    assert restored.tool_name == f"codecall_{call}"
    assert restored.args_as_dict() == made[0].args_as_dict()
    assert "of the host" not in json.dumps(ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json"))


def test_a_person_sees_what_the_hooks_left_and_exactly_that_runs() -> None:
    def before(call: Any) -> Any:
        return {**call.input, "order": call.input["order"].upper()}

    desk = Desk()
    calls = [
        *script("return callTool('refund', { order: 'a' })"),
        *meta("invoke", "direct", tool="refund", input={"order": "b"}),
    ]
    steps = Script(calls, "done")
    agent = desk.agent(steps, settings={"pipeline": {"before": before}})
    paused = within(agent.run("go"))
    assert [call.args_as_dict()["order"] for call in paused.output.approvals] == ["A", "B"]
    goes_on(agent, paused, dict.fromkeys(waiting(paused), True))
    assert sorted(desk.did) == [("refund", "A", 500), ("refund", "B", 500)]


@pytest.mark.parametrize("how", ["deferred", "inline"])
@pytest.mark.parametrize("call", [ONE_REFUND, DIRECT_REFUND], ids=["script", "direct"])
def test_an_edited_input_meets_the_pipeline_again_which_can_then_but_refuse(how: str, call: Any) -> None:
    def before(call: Any) -> Any:
        if call.input.get("cents", 0) > 1000:
            raise CodeModeToolError("too much for " + call.context.run_context.deps)
        return {**call.input, "order": call.input["order"].upper()}

    after: list[Any] = []

    def edit(ctx: Any, requests: DeferredToolRequests) -> DeferredToolResults:
        return requests.build_results(
            approvals={one.tool_call_id: ToolApproved(override_args=edited) for one in requests.approvals}
        )

    for edited, words in (
        ({"order": "A", "cents": 5000}, "too much for ann"),
        ({"order": "a", "cents": 50}, "would not run it unchanged"),
        ({"order": "A", "cents": 50}, None),
    ):
        desk, steps = Desk(), Script(call, "done")
        pipeline = {"before": before, "after": lambda call, output: after.append((call.input, output))}
        more = [HandleDeferredToolCalls(edit)] if how == "inline" else []
        agent = desk.agent(steps, *more, settings={"pipeline": pipeline})
        result = within(agent.run("go", deps="ann"))
        if how == "deferred":
            goes_on(agent, result, dict.fromkeys(waiting(result), ToolApproved(override_args=edited)), deps="ann")
        answer = steps.returned()
        assert answer["status"] == ("ok" if words is None else "tool_error"), answer
        assert words is None or words in answer["error"]["message"]
        assert desk.did == ([] if words else [("refund", "A", 50)])
    assert after == [({"order": "A", "cents": 50}, "refunded A: 50")]
