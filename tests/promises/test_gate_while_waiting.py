"""A gate that is added while a call waits: no answer but an approval opens it."""

from __future__ import annotations

import asyncio

import pytest
from pausing import PAUSING, Spy, go_on, start

from codemode import CodeModeTimeoutError, request_interrupt
from codemode.errors import CodeModeToolApprovalRequiredError

OK = {"approved": True}
GATES = {"always": True, "rule": lambda value, context: True}


@pytest.fixture
def spy():
    return Spy()


def login(spy, gate=False):
    def act(value, context):
        if context.interrupt is None:
            request_interrupt({"kind": "oauth"})
        return [value, context.interrupt.resolution]

    return [spy.tool("pay", act, needs_approval=gate)]


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_an_answer_to_the_tools_own_question_is_no_approval(spy, gate):
    waiting = start("return await tools.pay(5)", login(spy))
    spy.ran.clear()
    asked = go_on(waiting, login(spy, gate), "token")
    assert asked.requests[0].is_approval
    assert (asked.input, asked.tool_call_id) == (5, waiting.tool_call_id)
    assert spy.ran == []
    again = go_on(asked, login(spy, gate), OK)
    assert again.payload["kind"] == "oauth"
    assert go_on(again, login(spy, gate), "token") == [5, "token"]


def test_without_a_decision_in_callback_mode_it_does_not_run(spy):
    waiting = start("return await tools.pay(5)", login(spy), {})
    spy.ran.clear()
    with pytest.raises(CodeModeToolApprovalRequiredError):
        go_on(waiting, login(spy, gate=True), "token", options={})
    assert spy.ran == []


def test_a_callback_is_asked_and_the_answer_reaches_the_tool(spy):
    asked = []
    waiting = start("return await tools.pay(5)", login(spy), {})
    options = {"approval": {"on_approval_required": lambda request: asked.append(request.input) or "approved"}}
    assert go_on(waiting, login(spy, gate=True), "token", options=options) == [5, "token"]
    assert asked == [5]


@pytest.mark.parametrize("annotations", [{}, {"readOnlyHint": True}], ids=["asked", "by itself"])
def test_a_call_that_is_made_again_after_a_recovery_finds_the_gate(spy, passing_time, annotations):
    async def forever(value, context):
        passing_time.skip(61)
        await asyncio.Event().wait()

    short = {**PAUSING, "execution_policy": {"timeout_ms": 60_000}}
    with pytest.raises(CodeModeTimeoutError) as caught:
        start("return await tools.pay(5)", [spy.tool("pay", forever, annotations=annotations)], short)
    spy.ran.clear()
    gated = [spy.tool("pay", needs_approval=True, annotations=annotations)]
    answers = {} if annotations else {caught.value.recovery.interrupt_id: {"runAgain": True}}
    asked = go_on(caught.value.recovery, gated, resolutions=answers)
    assert asked.requests[0].is_approval
    assert spy.ran == []
    assert go_on(asked, gated, OK) == {"done": "pay"}
    assert spy.ran == [("pay", 5)]


def test_what_was_approved_is_not_asked_again(spy):
    approved = go_on(start("return await tools.pay(5)", login(spy, gate=True)), login(spy, gate=True), OK)
    assert approved.payload["kind"] == "oauth"
    assert go_on(approved, login(spy, gate=True), "token") == [5, "token"]
