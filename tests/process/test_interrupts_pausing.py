"""Pauses: what the guest notices of one (nothing), which calls wait, and what is told of it."""

from __future__ import annotations

import pytest
from pausing import OK, PAUSING, Spy, go_on, start
from suite import each_row

from codemode import CodeModeProtocolError, CodeModeTimeoutError, Interrupt, is_interrupt
from codemode.errors import CodeModeDetachedBridgeRequestError

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


@each_row("js", HIDING.values(), ids=HIDING)
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


def test_the_clock_runs_while_the_guest_spins(passing_time):
    spy = Spy()
    js = "tools.refund(1).catch(() => {}); await tools.fast(2); for (;;);"
    hooks = {"on_nested_tool_result": lambda event: passing_time.skip(61 if event.tool_name == "fast" else 0)}
    options = {**PAUSING, "execution_policy": {"timeout_ms": 60_000}, "lifecycle": hooks}
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
