"""What is over stays over: a program that was denied, an answer to an earlier call under the same id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from codemode_pydantic_ai import CodeMode
from gated import within
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse
from scripted import Script, program

JS = "return await tools.refund({ order: 'a' })"
SETTINGS: Any = {"continuation": {"keys": "a key that was set"}}


class Desk:
    def __init__(self, *steps: Any) -> None:
        self.did: list[str] = []
        self.script = Script(*steps)
        self.agent = Agent(
            self.script.model,
            tools=[Tool(self.refund, requires_approval=True)],
            output_type=[str, DeferredToolRequests],
            capabilities=[CodeMode(SETTINGS)],
        )

    def refund(self, order: str) -> str:
        self.did.append(order)
        return f"refunded {order}"

    def answer(self, history: Any, answers: dict[str, Any]) -> Any:
        return within(
            self.agent.run(message_history=history, deferred_tool_results=DeferredToolResults(approvals=answers))
        )


@pytest.mark.parametrize("which", ["before", "after"])
def test_a_program_that_was_denied_does_not_go_on_by_a_late_approval(which: str) -> None:
    desk = Desk(program(JS), "denied", "never", "denied again")
    paused = within(desk.agent.run("go"))
    (call,) = paused.output.approvals
    denied = desk.answer(paused.all_messages(), {"outer": False})
    assert denied.output == "denied"
    history = (paused if which == "before" else denied).all_messages()
    with pytest.raises(UserError, match=r"answered before: .* other answers"):
        desk.answer(history, {call.tool_call_id: True})
    assert desk.did == []


def test_the_same_denial_again_is_the_same_denial() -> None:
    desk = Desk(program(JS), "denied", "denied again")
    paused = within(desk.agent.run("go"))
    assert desk.answer(paused.all_messages(), {"outer": False}).output == "denied"
    assert desk.answer(paused.all_messages(), {"outer": False}).output == "denied again"


def test_a_program_that_has_gone_on_cannot_be_denied_any_more() -> None:
    desk = Desk(program(JS), "done", "never")
    paused = within(desk.agent.run("go"))
    (call,) = paused.output.approvals
    assert desk.answer(paused.all_messages(), {call.tool_call_id: True}).output == "done"
    with pytest.raises(UserError, match=r"cannot be denied: it was answered before: .* Continue with the message"):
        desk.answer(paused.all_messages(), {"outer": False})
    assert desk.did == ["a"]


def test_the_same_call_under_the_same_id_waits_under_an_id_of_its_own() -> None:
    desk = Desk(program(JS), "done", program(JS), "never")
    first = within(desk.agent.run("go"))
    (call,) = first.output.approvals
    done = desk.answer(first.all_messages(), {call.tool_call_id: True})
    second = within(desk.agent.run("once more", message_history=done.all_messages()))
    (other,) = second.output.approvals
    assert other.tool_call_id != call.tool_call_id
    with pytest.raises(UserError, match="No paused codeMode call waits"):
        desk.answer(second.all_messages(), {call.tool_call_id: True})
    assert desk.did == ["a"]


@pytest.mark.parametrize("answers", [{}, {"outer": True}])
def test_a_paused_program_that_has_lost_its_continuation_does_not_run_again(answers: Any) -> None:
    desk = Desk(program(JS), "never")
    paused = within(desk.agent.run("go"))
    history = [
        replace(message, metadata=None) if isinstance(message, ModelResponse) else message
        for message in paused.all_messages()
    ]
    other = Desk("denied")
    results = DeferredToolResults(approvals=answers) if answers else None
    with pytest.raises(UserError, match="continuation"):
        within(other.agent.run(message_history=history, deferred_tool_results=results))
    assert (desk.did, other.did, other.script.seen) == ([], [], [])
    assert other.answer(history, {"outer": False}).output == "denied"
