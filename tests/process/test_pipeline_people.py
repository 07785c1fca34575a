"""Hooks around every call, and people who decide about it: they see, edit and allow what was let through."""

from __future__ import annotations

import asyncio

import pytest
from pausing import OK, PAUSING, Spy, go_on, start
from pipeline_hooks import BOTH, CATCH, TOKEN, Token, hooks, scrubbing

from codemode import CodeModeError, CodeModeToolError, Tool, request_interrupt


def test_a_callback_is_asked_about_what_was_let_through(run):
    asked, spy = [], Spy()

    def ask(request):
        asked.append(request.input)
        return "approved"

    options = hooks(scrubbing, approval={"on_approval_required": ask})
    run("return await tools.refund({token: 'secret'})", [spy.guarded()], options=options)
    assert asked == [{"token": "***"}]
    assert spy.ran == [("refund", {"token": "***"})]


@BOTH
@pytest.mark.parametrize("schema", [None, TOKEN, Token], ids=["none", "json", "model"])
def test_what_was_let_through_is_shown_and_runs_unasked(kind, schema):
    spy, asked = Spy(), []
    options = hooks(lambda call: asked.append(call.input) or scrubbing(call), kind=kind, **PAUSING)
    tools = [spy.guarded(input_schema=schema)]
    interrupt = start("return await tools.refund({token: 'secret'})", tools, options)
    assert interrupt.input["token"] == "***"
    assert go_on(interrupt, tools, OK, options=options) == {"done": "refund"}
    assert len(asked) == len(spy.ran) == 1
    ran = spy.ran[0][1]
    assert (ran.model_dump() if schema is Token else ran) == interrupt.input


@BOTH
def test_an_edited_input_meets_the_hook_which_may_only_refuse(kind):
    def before(call):
        if call.input["token"] == "never":
            raise CodeModeToolError("never")
        return scrubbing(call)

    spy = Spy()
    options, tools = hooks(before, kind=kind, **PAUSING), [spy.guarded(input_schema=Token)]
    js = CATCH % "refund({token: 'secret'})"

    def edited(token, **more):
        interrupt = start(js, tools, options)
        return go_on(interrupt, tools, {**OK, "input": {"token": token, **more}}, options=options)

    assert edited("never") == ["CodeModeToolError", "CODE_MODE_TOOL_ERROR", "never"]
    refused = edited("mine")
    assert refused[:2] == ["CodeModeToolError", "CODE_MODE_TOOL_ERROR"]
    assert "edited input of tool 'refund' is refused" in refused[2]
    assert spy.ran == []
    # It comes to what the person has written: nothing is replaced.
    assert edited("***", count=3) == {"done": "refund"}
    assert spy.ran == [("refund", Token(token="***", count=3))]


def test_a_hook_that_leaves_an_edit_alone_lets_it_run():
    spy, asked = Spy(), []
    options, tools = hooks(lambda call: asked.append(call.input), **PAUSING), [spy.guarded()]
    interrupt = start("return await tools.refund({a: 1})", tools, options)
    assert go_on(interrupt, tools, {**OK, "input": {"a": 2}}, options=options) == {"done": "refund"}
    assert asked == [{"a": 1}, {"a": 2}]
    assert spy.ran == [("refund", {"a": 2})]


def test_a_tool_that_asks_goes_on_with_what_it_was_given():
    given, asked = [], []

    def login(value, context):
        given.append(value)
        if context.interrupt is None:
            request_interrupt({"kind": "oauth"})
        return context.interrupt.resolution

    tools = [Tool("login", execute=login)]
    options = hooks(lambda call: asked.append(call.input) or scrubbing(call), **PAUSING)
    interrupt = start("return await tools.login({token: 'secret'})", tools, options)
    assert interrupt.input == {"token": "***"}
    assert go_on(interrupt, tools, "fine", options=options) == "fine"
    assert given == [{"token": "***"}] * 2
    assert asked == [{"token": "secret"}]


def test_replayed_calls_show_what_ran():
    spy, events = Spy(), []
    options = hooks(scrubbing, lifecycle={"on_nested_tool_call": events.append}, **PAUSING)
    tools = [spy.tool("take"), spy.guarded()]
    js = "await tools.take({token: 'secret'}); return await tools.refund({token: 'other'})"
    interrupt = start(js, tools, options)
    go_on(interrupt, tools, OK, options=options)
    assert [(event.tool_name, event.replayed, event.input) for event in events] == [
        ("take", False, {"token": "***"}),
        ("refund", False, {"token": "***"}),
        ("take", True, {"token": "***"}),
        ("refund", False, {"token": "***"}),
    ]
    assert {event.input_bytes for event in events} == {len('{"token":"***"}')}


@pytest.mark.parametrize("annotations", [None, {"readOnlyHint": True}], ids=["asks", "again"])
def test_a_recovery_shows_and_repeats_what_ran(passing_time, annotations):
    asked, given = [], []

    async def hangs(value):
        given.append(value)
        if len(given) == 1:
            passing_time.skip(61)
            await asyncio.Event().wait()
        return value

    tools = [Tool("hang", execute=hangs, annotations=annotations)]
    options = hooks(lambda call: asked.append(call.input) or scrubbing(call), **PAUSING)
    minute = {**options, "execution_policy": {"timeout_ms": 60_000}}
    with pytest.raises(CodeModeError) as caught:
        start("return await tools.hang({token: 'secret'})", tools, minute)
    recovery = caught.value.recovery
    answer = [] if annotations else [{"runAgain": True}]
    assert [request.input for request in recovery.requests] == ([] if annotations else [{"token": "***"}])
    assert go_on(recovery, tools, *answer, options=options) == {"token": "***"}
    assert given == [{"token": "***"}] * 2
    assert asked == [{"token": "secret"}]
    # Also where nobody knows the tool any more.
    assert "secret" not in str([request.to_dict() for request in recovery.requests])
