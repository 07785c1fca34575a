"""Approvals of a paused program: what was shown runs, edits and denials, several waits of one call."""

from __future__ import annotations

import asyncio

import pydantic
import pytest
from pausing import OK, PAUSING, Spy, go_on, start, through_json
from waiting import within

from codemode import (
    CallContext,
    CodeModeProtocolError,
    CodeModeToolApprovalDeniedError,
    continue_approval,
    continue_approval_sync,
    continue_interrupt_sync,
    create_code_mode_tool,
    get_approval_response,
    is_approval_interrupt,
    replace_interrupt_result,
    request_interrupt,
    run_code_mode_sync,
    to_approval_messages,
    unwrap_result,
)


class Refund(pydantic.BaseModel):
    order: str
    amount: float
    currency: str = "EUR"


def test_what_was_shown_is_what_runs():
    spy = Spy()
    tools = [spy.guarded(input_schema=Refund)]
    interrupt = start("return await tools.refund({order: 'A1', amount: 900})", tools)
    assert interrupt.input == {"order": "A1", "amount": 900.0, "currency": "EUR"}
    assert is_approval_interrupt(interrupt)
    assert go_on(interrupt, tools, OK) == {"done": "refund"}
    assert spy.ran == [("refund", Refund(order="A1", amount=900, currency="EUR"))]


def test_an_edited_input_is_validated_and_runs():
    spy = Spy()
    tools = [spy.guarded(input_schema=Refund)]
    js = "const input = {order: 'A1', amount: 900}; await tools.refund(input); return input"
    interrupt = start(js, tools)
    for wrong in ({"order": "A1", "amount": "much"}, {}, None, "x"):
        with pytest.raises(CodeModeProtocolError, match="edited input"):
            go_on(interrupt, tools, {**OK, "input": wrong})
    assert spy.ran == []
    # The program's own value is not touched: it asked for 900 and is answered.
    assert go_on(interrupt, tools, {**OK, "input": {"order": "A1", "amount": 9}}) == {"order": "A1", "amount": 900}
    assert spy.ran == [("refund", Refund(order="A1", amount=9))]


@pytest.mark.parametrize("pipeline", [{}, {"before": lambda call: None}])
def test_events_and_traces_show_the_edited_input_also_when_the_call_is_replayed(pipeline):
    spy, shown, traces = Spy(), [], []
    lifecycle = {"on_nested_tool_call": lambda event: shown.append(event.input["amount"]), "on_trace": traces.append}
    options = {**PAUSING, "lifecycle": lifecycle, "pipeline": pipeline}
    tools = [spy.guarded(input_schema=Refund)]
    js = "for (const amount of [900, 70]) await tools.refund({order: 'A1', amount});"
    first = start(js, tools, options)
    shown.clear()
    second = go_on(first, tools, {**OK, "input": {"order": "A1", "amount": 4}}, options=options)
    assert shown == [4, 70]
    shown.clear()
    go_on(second, tools, OK, options=options)
    assert shown == [4, 70]
    for trace in traces[1:]:
        assert [call.input["amount"] for call in trace.bridge_requests] == [4, 70]


@pytest.mark.parametrize("show", [False, True])
def test_a_denial_can_be_caught(show):
    spy = Spy()
    options = {"approval": {"mode": "interrupt", "show_denial_reason": show}}
    js = "try { return await tools.refund(1) } catch (e) { return [e.name, e.code, e.message] }"
    denied = {"approved": False, "reason": "the customer is lying"}
    interrupt = start(js, [spy.guarded()], options)
    name, code, message = go_on(interrupt, [spy.guarded()], denied, options=options)
    assert (name, code) == ("CodeModeToolApprovalDeniedError", "CODE_MODE_TOOL_APPROVAL_DENIED")
    assert ("lying" in message) == show
    assert spy.ran == []


def test_a_denial_that_is_not_caught_is_the_hosts_error():
    spy = Spy()
    interrupt = start("return await tools.refund(1)", [spy.guarded()])
    with pytest.raises(CodeModeToolApprovalDeniedError) as caught:
        go_on(interrupt, [spy.guarded()], {"approved": False, "reason": "no"})
    assert caught.value.details["reason"] == "no"
    assert "no" not in caught.value.message.split()


def test_a_denial_is_replayed_as_it_was():
    spy = Spy()
    js = """
    const seen = [];
    for (let i = 0; i < 3; i++) { try { await tools.refund(i); seen.push("done") } catch (e) { seen.push(e.code) } }
    return seen
    """
    interrupt = start(js, [spy.guarded()])
    for answer in ({"approved": False}, OK):
        interrupt = go_on(interrupt, [spy.guarded()], answer)
    denied = "CODE_MODE_TOOL_APPROVAL_DENIED"
    assert go_on(interrupt, [spy.guarded()], {"approved": False}) == [denied, "done", denied]
    assert spy.ran == [("refund", 1)]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_rule_is_not_asked_again_about_a_waiting_request(kind):
    asked = []

    def now(value, context):
        asked.append((value, context.tool_call_id))
        return value > 1

    async def later(value, context):
        await asyncio.sleep(0)
        return now(value, context)

    spy = Spy()
    tools = [spy.tool("refund", needs_approval=now if kind == "sync" else later)]
    js = "return (await Promise.all([tools.refund(1), tools.refund(2), tools.refund(3)])).length"
    interrupt = start(js, tools, tool_call_id="o")
    rest = go_on(interrupt, tools, resolutions={interrupt.requests[1].interrupt_id: OK})
    assert go_on(rest, tools, OK) == 3
    assert asked == [(1, "o:tool-1"), (2, "o:tool-2"), (3, "o:tool-3")]
    assert [value for _, value in spy.ran] == [1, 3, 2]


def approved_then_login(spy):
    def act(value, context):
        if context.interrupt is None:
            request_interrupt({"kind": "oauth"})
        return [value.amount, context.interrupt.resolution]

    return [spy.tool("refund", act, needs_approval=True, input_schema=Refund)]


def test_approval_and_edit_persist_through_another_wait_of_the_same_call():
    spy = Spy()
    tools = approved_then_login(spy)
    asked = start("return await tools.refund({order: 'A1', amount: 900})", tools)
    login = go_on(asked, tools, {**OK, "input": {"order": "A1", "amount": 5}})
    assert (login.payload["kind"], login.tool_call_id) == ("oauth", asked.tool_call_id)
    assert login.input == {"order": "A1", "amount": 5.0, "currency": "EUR"}
    assert login.interrupt_id != asked.interrupt_id
    assert go_on(login, tools, "token") == [5.0, "token"]
    assert [value.amount for _, value in spy.ran] == [5.0, 5.0]


def test_an_approval_cannot_answer_a_login_nor_the_other_way_round():
    spy = Spy()
    tools = approved_then_login(spy)
    asked = start("return await tools.refund({order: 'A1', amount: 900})", tools)
    with pytest.raises(CodeModeProtocolError):
        go_on(asked, tools, "token")
    login = go_on(asked, tools, OK)
    with pytest.raises(CodeModeProtocolError, match="not a pending request"):
        go_on(login, tools, resolutions={asked.interrupt_id: OK})


def test_a_callback_that_allowed_a_call_is_not_asked_again():
    asked = []

    def allow(request):
        asked.append(request.input)
        return "approved"

    spy = Spy()
    options = {"approval": {"on_approval_required": allow}}
    login = start("return await tools.refund({order: 'A1', amount: 900})", approved_then_login(spy), options)
    assert login.payload["kind"] == "oauth"
    assert go_on(login, approved_then_login(spy), "token", options=options) == [900.0, "token"]
    assert asked == [{"order": "A1", "amount": 900.0, "currency": "EUR"}]


def test_a_tool_that_changes_its_input_changes_nothing_that_is_shown():
    spy = Spy()

    def act(value, context):
        value["amount"] = 0
        value["more"] = True
        if context.interrupt is None:
            request_interrupt({"kind": "oauth"})

    tools = [spy.tool("refund", act, needs_approval=True)]
    asked = start("return await tools.refund({amount: 900})", tools)
    login = go_on(asked, tools, OK)
    assert login.input == {"amount": 900}


def test_continue_approval_pauses_for_the_next_approval_whatever_the_mode_is():
    spy = Spy()
    interrupt = start("await tools.refund(1); return await tools.refund(2)", [spy.guarded()])
    answer = {"approvalId": interrupt.interrupt_id, "approved": True}
    callback = {"approval": {"on_approval_required": lambda request: "approved"}}
    second = within(continue_approval(interrupt, answer, tools=[spy.guarded()], options=callback))
    assert is_approval_interrupt(second)
    assert spy.ran == [("refund", 1)]


@pytest.mark.parametrize(
    "wrong", [{}, {"approvalId": "other", "approved": True}, {"approved": True}, [{"approved": 1}], []]
)
def test_continue_approval_refuses_other_responses(wrong):
    spy = Spy()
    interrupt = start("return await tools.refund(1)", [spy.guarded()])
    with pytest.raises(CodeModeProtocolError):
        within(continue_approval(interrupt, wrong, tools=[spy.guarded()], options=PAUSING))
    assert spy.ran == []


def test_approvals_through_a_message_history():
    spy = Spy()
    code_mode = create_code_mode_tool([spy.guarded()], PAUSING)
    js = "return (await Promise.allSettled([tools.refund(1), tools.refund(2)])).map(one => one.status)"
    result = code_mode.execute_sync({"js": js}, call=CallContext(tool_call_id="call-1"))
    output = {"type": "json", "value": through_json(result).to_dict()}
    history = [{"role": "tool", "content": [{"type": "tool-result", "toolCallId": "call-1", "output": output}]}]
    interrupt = unwrap_result(history[0]).interrupt
    (asking,) = to_approval_messages(interrupt)
    approvals = [part["approvalId"] for part in asking["content"] if part["type"] == "tool-approval-request"]
    answers = [
        {"type": "tool-approval-response", "approvalId": one, "approved": one == approvals[0]} for one in approvals
    ]
    history += [asking, {"role": "tool", "content": answers}]
    given = [get_approval_response(history, interrupt, interrupt_id=one) for one in approvals]
    final = continue_approval_sync(interrupt, given, tools=[spy.guarded()], options=PAUSING)
    assert final == ["fulfilled", "rejected"]
    assert spy.ran == [("refund", 1)]
    after = replace_interrupt_result(history, interrupt, final)
    assert after[0]["content"][0]["output"] == {"type": "json", "value": final}


def test_the_sync_forms():
    spy = Spy()
    tools = [spy.guarded()]
    interrupt = run_code_mode_sync("return await tools.refund(1)", tools, options=PAUSING)
    assert continue_interrupt_sync(interrupt, OK, tools=tools, options=PAUSING) == {"done": "refund"}
    code_mode = create_code_mode_tool(tools, PAUSING)
    interrupt = code_mode.execute_sync({"js": "return await tools.refund(2)"})
    assert code_mode.resume_sync(interrupt, resolutions={interrupt.interrupt_id: OK}) == {"done": "refund"}

    async def inside_a_loop():
        inner = code_mode.execute_sync({"js": "return await tools.refund(3)"})
        return code_mode.resume_sync(inner.to_dict(), OK)

    assert within(inside_a_loop()) == {"done": "refund"}


def test_messages_and_context_of_the_resume_reach_the_tool():
    seen = []
    spy = Spy()
    tools = [
        spy.tool("refund", lambda _, context: seen.append((context.messages, context.context)), needs_approval=True)
    ]
    interrupt = start("return await tools.refund(1)", tools, tool_call_id="o", messages=["a"], context="A")
    go_on(interrupt, tools, OK, messages=["b"], context="B")
    assert seen == [(["b"], "B")]
