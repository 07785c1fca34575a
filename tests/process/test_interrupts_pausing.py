"""Pauses: who can cause one, what the guest notices of it (nothing), what waits, and what then runs."""

from __future__ import annotations

import asyncio

import pydantic
import pytest
from pausing import PAUSING, Spy, go_on, start, through_json
from waiting import within

from codemode import (
    CodeModeDetachedBridgeRequestError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeTimeoutError,
    CodeModeToolApprovalDeniedError,
    CodeModeToolError,
    Interrupt,
    Tool,
    continue_approval,
    continue_approval_sync,
    continue_interrupt_sync,
    create_code_mode_tool,
    get_approval_response,
    is_approval_interrupt,
    is_interrupt,
    replace_interrupt_result,
    request_interrupt,
    run_code_mode_sync,
    to_approval_messages,
    unwrap_result,
)

OK = {"approved": True}


class Refund(pydantic.BaseModel):
    order: str
    amount: float
    currency: str = "EUR"


# --- what the guest notices ---

HIDING = {
    "catch": "try { return await tools.refund(1) } catch { return 'caught' }",
    "finally": "try { return await tools.refund(1) } finally { await tools.seen('finally') }",
    "then": "return tools.refund(1).then(v => v, e => tools.seen(String(e)))",
    "promise finally": "return tools.refund(1).finally(() => tools.seen('finally'))",
    "allSettled": "const [one] = await Promise.allSettled([tools.refund(1)]);"
    " await tools.seen(one.status); return one.value",
    "race": "return Promise.race([tools.refund(1), new Promise(() => {})]).catch(() => tools.seen('race'))",
    "any": "return Promise.any([tools.refund(1)]).catch(() => tools.seen('any'))",
    "thenable": "const t = { then(r, j) { return tools.refund(1).then(r, j) } };"
    " try { return await t } catch { await tools.seen('thenable') }",
    "async generator": "async function* g() { try { yield await tools.refund(1) } finally { await tools.seen('gen') } }"
    " for await (const v of g()) { await tools.never; return v }",
    "overwritten globals": "globalThis.Promise = function () { throw 1 }; globalThis.Error = null;"
    " globalThis.JSON = null; globalThis.queueMicrotask = null; return await tools.refund(1)",
    "subclass": "class P extends Promise {}; return await P.resolve(tools.refund(1)).catch(() => tools.seen('p'))",
}


@pytest.mark.parametrize("js", HIDING.values(), ids=HIDING)
def test_guest_code_cannot_observe_a_pause(js):
    spy = Spy()
    tools = [spy.guarded(), spy.tool("seen")]
    interrupt = start(js, tools)
    assert isinstance(interrupt, Interrupt)
    assert spy.ran == []
    result = go_on(interrupt, tools, OK)
    assert result == {"done": "refund"}
    assert spy.ran[0] == ("refund", 1)
    # What is written in `finally` runs once the call has really ended, and whatever catches never runs.
    expected = {
        "finally": ["finally"],
        "promise finally": ["finally"],
        "allSettled": ["fulfilled"],
        "async generator": ["gen"],
    }
    name = next(name for name, text in HIDING.items() if text == js)
    assert [value for _, value in spy.ran[1:]] == expected.get(name, [])


def test_guest_json_shaped_like_an_interrupt_is_just_json():
    spy = Spy()
    real = start("return await tools.refund(1)", [spy.guarded()])
    assert is_interrupt(real)
    copied = {**real.to_dict(), "continuation": {}}
    value = start("return (await tools.echo(0))", [spy.tool("echo", lambda *_: copied)])
    assert type(value) is dict
    assert not is_interrupt(value)
    with pytest.raises(CodeModeProtocolError):
        go_on(value_as_interrupt(value), [spy.guarded()], OK)


def value_as_interrupt(value):
    interrupt = Interrupt.from_dict(value)
    assert interrupt.to_dict() == value
    return interrupt


def test_even_a_genuine_interrupt_that_a_program_returns_is_its_value():
    spy = Spy()
    real = start("return await tools.refund(1)", [spy.guarded()])
    value = start("return await tools.echo(0)", [spy.tool("echo", lambda *_: real.to_dict())])
    assert type(value) is dict


def test_a_program_that_ends_with_a_waiting_call_is_an_error_and_no_interrupt():
    spy = Spy()
    with pytest.raises(CodeModeDetachedBridgeRequestError) as caught:
        start("tools.refund(1).catch(() => {}); await tools.fast(2); return 1", [spy.guarded(), spy.tool("fast")])
    assert [call["status"] for call in caught.value.details["calls"]] == ["waiting"]


def test_the_clock_runs_while_the_guest_spins():
    spy = Spy()
    js = "tools.refund(1).catch(() => {}); await tools.fast(2); for (;;);"
    options = {**PAUSING, "execution_policy": {"timeout_ms": 300}}
    with pytest.raises(CodeModeTimeoutError) as caught:
        start(js, [spy.guarded(), spy.tool("fast")], options)
    # The refund still waits for its approval, under the recovery.
    assert [call["status"] for call in caught.value.calls] == ["waiting", "fulfilled"]
    assert [request.is_approval for request in caught.value.recovery.requests] == [True]
    assert spy.ran == [("fast", 2)]


# --- bundles ---


def test_other_branches_run_on_until_everything_is_settled_or_waits():
    spy = Spy()
    tools = [spy.guarded(), spy.asking(), spy.tool("look", lambda value, _: value)]
    js = """
    const chain = async () => { let n = 0; for (let i = 0; i < 3; i++) n += await tools.look(i); return n };
    return await Promise.all([tools.refund(1), chain(), tools.login(2), tools.refund(3)]);
    """
    interrupt = start(js, tools, tool_call_id="o")
    assert [value for name, value in spy.ran if name == "look"] == [0, 1, 2]
    assert [(one.tool_name, one.input) for one in interrupt.requests] == [("refund", 1), ("login", 2), ("refund", 3)]
    assert [one.tool_call_id for one in interrupt.requests] == ["o:tool-1", "o:tool-3", "o:tool-4"]
    assert len({one.interrupt_id for one in interrupt.requests}) == 3
    assert interrupt.interrupt_id == interrupt.requests[0].interrupt_id
    first, login, third = (one.interrupt_id for one in interrupt.requests)

    rest = go_on(interrupt, tools, resolutions={third: OK})
    assert [one.interrupt_id for one in rest.requests] == [first, login]
    last = go_on(rest, tools, resolutions={login: "token"})
    assert [one.interrupt_id for one in last.requests] == [first]
    assert go_on(last, tools, OK) == [{"done": "refund"}, 3, "token", {"done": "refund"}]
    assert [one for one in spy.ran if one[0] == "refund"] == [("refund", 3), ("refund", 1)]
    assert len([one for one in spy.ran if one[0] == "look"]) == 3


def test_all_at_once():
    spy = Spy()
    interrupt = start("return await Promise.all([1, 2, 3].map(n => tools.refund(n)))", [spy.guarded()])
    answers = {one.interrupt_id: OK for one in interrupt.requests}
    assert go_on(interrupt, [spy.guarded()], resolutions=answers) == [{"done": "refund"}] * 3


def test_request_ids_of_two_runs_differ():
    spy = Spy()
    ids = {start("return await tools.refund(1)", [spy.guarded()], tool_call_id="o").interrupt_id for _ in range(3)}
    assert len(ids) == 3


# --- approvals ---


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


def test_continue_approval_pauses_for_the_next_approval_whatever_the_mode_is():  # A105
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
def test_continue_approval_refuses_other_responses(wrong):  # A105
    spy = Spy()
    interrupt = start("return await tools.refund(1)", [spy.guarded()])
    with pytest.raises(CodeModeProtocolError):
        within(continue_approval(interrupt, wrong, tools=[spy.guarded()], options=PAUSING))
    assert spy.ran == []


def test_approvals_through_a_message_history():  # A103 to A107, A115, A116
    spy = Spy()
    code_mode = create_code_mode_tool([spy.guarded()], PAUSING)
    js = "return (await Promise.allSettled([tools.refund(1), tools.refund(2)])).map(one => one.status)"
    result = code_mode.execute_sync({"js": js}, tool_call_id="call-1")
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


# --- request_interrupt ---


def deep(context, levels):
    if levels:
        return deep(context, levels - 1)
    if context.interrupt is None:
        request_interrupt({"kind": "oauth", "level": "deep"})
    return context.interrupt.resolution


async def awaited(value, context):
    await asyncio.sleep(0)
    return deep(context, 50)


def in_a_thread(value, context):
    return deep(context, 50)


async def through_to_thread(value, context):
    return await asyncio.to_thread(deep, context, 5)


async def in_a_task_group(value, context):
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.Event().wait() if context.interrupt is None else asyncio.sleep(0))
        task = group.create_task(awaited(value, context))
    return task.result()


async def in_nested_task_groups(value, context):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(in_a_task_group(value, context))
    return task.result()


async def in_gather(value, context):
    return (await asyncio.gather(awaited(value, context), asyncio.sleep(0)))[0]


async def in_a_timeout(value, context):
    async with asyncio.timeout(20):
        return await awaited(value, context)


async def in_an_async_generator(value, context):
    yield "first"
    await asyncio.sleep(0)
    yield deep(context, 3)


async def behind_except_exception(value, context):
    try:
        return await awaited(value, context)
    except Exception:
        return "swallowed"


async def in_a_finally(value, context):
    try:
        return await awaited(value, context)
    finally:
        await asyncio.sleep(0)


WAYS = [
    awaited, in_a_thread, through_to_thread, in_a_task_group, in_nested_task_groups, in_gather, in_a_timeout,
    in_an_async_generator, behind_except_exception, in_a_finally,
]  # fmt: skip


@pytest.mark.parametrize("execute", WAYS, ids=lambda way: way.__name__)
def test_a_tool_can_pause_from_anywhere(execute):
    tools = [Tool("login", execute=execute)]
    interrupt = start("try { return await tools.login(1) } catch (e) { return e.message }", tools)
    assert interrupt.payload == {"kind": "oauth", "level": "deep"}
    assert not is_approval_interrupt(interrupt)
    assert to_approval_messages(interrupt) == []
    assert go_on(interrupt, tools, {"token": 5}) == {"token": 5}


def test_a_tool_sees_what_it_asked_and_what_was_answered():
    seen = []
    spy = Spy()

    def ask(_value, context):
        seen.append(context.interrupt)
        if len(seen) < 3:
            request_interrupt({"kind": "oauth", "round": len(seen)})
        return "in"

    tools = [spy.tool("login", ask)]
    first = start("return await tools.login(1)", tools, tool_call_id="o")
    second = go_on(first, tools, "one")
    assert second.interrupt_id != first.interrupt_id
    assert second.tool_call_id == first.tool_call_id == "o:tool-1"
    assert second.payload == {"kind": "oauth", "round": 2}
    assert go_on(second, tools, None) == "in"
    assert seen[0] is None
    assert [(one.id, one.payload, one.resolution) for one in seen[1:]] == [
        (first.interrupt_id, {"kind": "oauth", "round": 1}, "one"),
        (second.interrupt_id, {"kind": "oauth", "round": 2}, None),
    ]


@pytest.mark.parametrize("payload", [None, {}, {"kind": ""}, {"kind": 5}, {"kind": "ai-sdk-code-mode/tool-approval"}])
def test_a_wrong_payload_is_the_tools_own_type_error(payload):
    caught = []

    def wrong(value):
        try:
            request_interrupt(payload)
        except TypeError as error:
            caught.append(error)
            raise

    with pytest.raises(CodeModeToolError) as failed:
        start("return await tools.wrong(1)", [Tool("wrong", execute=wrong)])
    assert failed.value.__cause__ is caught[0]


def test_a_payload_that_is_too_large_or_no_json_fails_the_call():  # A109
    for more in ("x" * 200, object()):

        def ask(value, more=more):
            request_interrupt({"kind": "oauth", "more": more})

        options = {"execution_policy": {"max_tool_output_bytes": 100}}
        with pytest.raises(CodeModeSerializationError, match="interrupt payload"):
            start("return await tools.ask(1)", [Tool("ask", execute=ask)], options)


@pytest.mark.parametrize("where", ["rule", "async rule", "callback"])
def test_what_decides_about_a_call_cannot_pause(where):
    def pause(*_):
        request_interrupt({"kind": "oauth"})

    async def later(*_):
        request_interrupt({"kind": "oauth"})

    rule = {"rule": pause, "async rule": later, "callback": True}[where]
    options = {"approval": {"on_approval_required": pause}}
    spy = Spy()
    with pytest.raises(CodeModeToolError) as caught:
        start("return await tools.refund(1)", [spy.tool("refund", needs_approval=rule)], options)
    assert isinstance(caught.value.__cause__, TypeError)
    assert spy.ran == []


# --- lifecycle ---


def test_events_of_a_pause_and_of_its_resume():
    seen = []
    hooks = ("on_nested_tool_call", "on_nested_tool_result", "on_interrupt", "on_trace")
    options = {**PAUSING, "lifecycle": dict.fromkeys(hooks, seen.append)}
    spy = Spy()
    tools = [spy.guarded(), spy.tool("look")]

    def shapes():
        shown = [(type(e).__name__, getattr(e, "status", None), getattr(e, "replayed", None)) for e in seen]
        seen.clear()
        return shown

    interrupt = start("await tools.look(1); return await tools.refund(2)", tools, options)
    assert seen[-2].interrupt is interrupt
    assert seen[-1].interrupted_by is interrupt
    assert shapes() == [
        ("NestedToolCallEvent", None, False),
        ("NestedToolResultEvent", "fulfilled", False),
        ("NestedToolCallEvent", None, False),
        ("NestedToolResultEvent", "interrupted", False),
        ("InterruptEvent", None, None),
        ("Trace", "interrupted", None),
    ]
    go_on(interrupt, tools, OK, options=options)
    assert shapes() == [
        ("NestedToolCallEvent", None, True),
        ("NestedToolResultEvent", "fulfilled", True),
        ("NestedToolCallEvent", None, False),
        ("NestedToolResultEvent", "fulfilled", False),
        ("Trace", "completed", None),
    ]
