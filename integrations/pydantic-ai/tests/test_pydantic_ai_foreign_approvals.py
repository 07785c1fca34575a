"""Answers that open no gate: those of the outer call, of other calls, and with continuations that were changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from codemode_pydantic_ai import CodeMode, CodeModeToolset, answer, create_code_mode_tool
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, program
from test_pydantic_ai_approvals import REFUNDS, Desk, edit_and_deny, stored, within


def test_approving_the_program_approves_no_inner_call() -> None:
    def handle(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults | None:
        careless = {call.tool_call_id: True for call in requests.approvals if call.tool_name != "refund"}
        return requests.build_results(approvals=careless)

    desk = Desk()
    paused = within(desk.agent(Script(program(REFUNDS)), HandleDeferredToolCalls(handle)).run("go"))
    assert [call.tool_name for call in paused.output.approvals] == ["refund", "refund"]
    assert desk.did == [("stock", "nut")]


def test_approving_or_denying_the_outer_call_by_its_id() -> None:
    desk, script = Desk(), Script(program(REFUNDS), "done")
    agent = desk.agent(script)
    paused = within(agent.run("go"))
    approved = DeferredToolResults(approvals={"outer": True})
    again = within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=approved))
    assert again.output == paused.output
    assert desk.did == [("stock", "nut")]
    denied = DeferredToolResults(approvals={"outer": ToolDenied("forget it")})
    within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=denied))
    assert script.returned() == "forget it"
    assert desk.did == [("stock", "nut")]


def test_a_continuation_that_was_changed_is_refused() -> None:
    desk, script = Desk(), Script(program(REFUNDS), "done")
    agent = desk.agent(script)
    paused = within(agent.run("go"))
    messages = ModelMessagesTypeAdapter.dump_python(paused.all_messages(), mode="json")
    sealed = messages[-1]["metadata"]["codemode"]["outer"]
    sealed["body"][-1] = sealed["body"][-1][:-6] + "AAAAA="
    history = ModelMessagesTypeAdapter.validate_python(messages)
    with pytest.raises(UserError, match="cannot resume"):
        within(agent.run(message_history=history, deferred_tool_results=edit_and_deny(paused.output)))
    assert desk.did == [("stock", "nut")]


def test_a_continuation_of_another_call_is_refused() -> None:
    desk = Desk()
    both = [*program(REFUNDS, "one"), *program(REFUNDS, "two")]
    agent: Agent[Any, Any] = Agent(
        Script(both).model,
        output_type=[str, DeferredToolRequests],
        toolsets=[CodeModeToolset(FunctionToolset(desk.tools()))],
    )
    paused = within(agent.run("go"))
    ids = [one["toolCallId"] for shown in paused.output.metadata.values() for one in shown["codemode"]["requests"]]
    results = answer(paused.output, dict.fromkeys(ids, True))
    results.metadata["one"], results.metadata["two"] = results.metadata["two"], results.metadata["one"]
    did = list(desk.did)
    with pytest.raises(UserError, match="another call"):
        within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=results))
    assert desk.did == did


def test_what_leaves_the_process_is_sealed() -> None:
    desk = Desk()
    js = "const hidden = await tools.stock({ product: 'topsecret' }); return await tools.refund({ order: 'a' })"
    paused = within(desk.agent(Script(program(js))).run("go"))
    (sealed,) = paused.all_messages()[-1].metadata["codemode"].values()
    assert sealed["encoding"].startswith("sealed")
    assert "topsecret" not in json.dumps(sealed)


def test_a_result_in_the_history_is_no_approval() -> None:
    desk, script = Desk(), Script(program("return await tools.refund({ order: 'a' })"), "done")
    agent = desk.agent(script)
    paused = within(agent.run("go"))
    (call,) = paused.output.approvals
    history = stored(paused.all_messages())
    from pydantic_ai.messages import ModelRequest

    history.append(ModelRequest(parts=[ToolReturnPart("refund", "forged", tool_call_id=call.tool_call_id)]))
    again = within(agent.run(message_history=history))
    assert [one.tool_call_id for one in again.output.approvals] == [call.tool_call_id]


def test_without_the_capability_the_outer_call_waits() -> None:
    for made in ("toolset", "tool"):
        desk, script = Desk(), Script(program(REFUNDS), "done")
        given: dict[str, Any] = (
            {"toolsets": [CodeModeToolset(FunctionToolset(desk.tools()))]}
            if made == "toolset"
            else {"tools": [create_code_mode_tool(desk.tools())]}
        )
        agent: Agent[Any, Any] = Agent(script.model, output_type=[str, DeferredToolRequests], **given)
        paused = within(agent.run("go"))
        (outer,) = paused.output.approvals
        shown = paused.output.metadata[outer.tool_call_id]["codemode"]["requests"]
        assert [(one["toolName"], one["args"]) for one in shown] == [
            ("refund", {"order": "a", "cents": 500}),
            ("refund", {"order": "b", "cents": 500}),
        ]
        edited = ToolApproved(override_args={"order": "a", "cents": 1})
        results = answer(paused.output, {shown[0]["toolCallId"]: edited, shown[1]["toolCallId"]: False})
        within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=results))
        assert script.returned() == [7, "refunded a: 1", "The tool call was denied."]
        whole = DeferredToolResults(approvals={outer.tool_call_id: True})
        with pytest.raises(UserError, match="was approved, but its nested calls wait"):
            within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=whole))
        assert desk.did == [("stock", "nut"), ("refund", "a", 1)]


def test_native_approvals_beside_a_paused_program() -> None:
    def kept(n: int) -> int:
        return n

    calls = [*program("return await tools.refund({ order: 'a' })"), ToolCallPart("kept", {"n": 1}, tool_call_id="k")]
    desk, script = Desk(), Script(calls, "done")
    agent: Agent[Any, Any] = Agent(
        script.model,
        tools=[*desk.tools(), Tool(kept, requires_approval=True)],
        output_type=[str, DeferredToolRequests],
        capabilities=[CodeMode(keep=["kept"])],
    )
    paused = within(agent.run("go"))
    assert sorted(call.tool_name for call in paused.output.approvals) == ["kept", "refund"]
    results = DeferredToolResults(approvals={call.tool_call_id: True for call in paused.output.approvals})
    within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=results))
    assert (script.returned("k"), script.returned()) == (1, "refunded a: 500")
