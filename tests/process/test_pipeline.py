"""The host's functions around every call: what they are told, what they may change, and what their failures do."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import FrozenInstanceError

import pydantic
import pytest
from pausing import OK, PAUSING, Spy, go_on, start

from codemode import (
    PIPELINE_NULL,
    CodeModeAbortedError,
    CodeModeError,
    CodeModeSerializationError,
    CodeModeTimeoutError,
    CodeModeToolError,
    Pipeline,
    PipelineCall,
    Tool,
    request_interrupt,
    run_code_mode,
)

TOKEN = {"type": "object", "properties": {"token": {"type": "string", "maxLength": 8}}, "required": ["token"]}
BOTH = pytest.mark.parametrize("kind", ["sync", "async"])
CATCH = "try { return await tools.%s } catch (e) { return [e.name, e.code, e.message] }"


class Token(pydantic.BaseModel):
    token: str
    count: int = 1


def made(kind, function):
    """Return a hook of this kind that does what ``function`` does."""

    async def later(*arguments):
        await asyncio.sleep(0)
        return function(*arguments)

    return later if kind == "async" else function


def hooks(before=None, after=None, kind="sync", **options):
    given = {"before": before and made(kind, before), "after": after and made(kind, after)}
    return {"pipeline": given, **options}


def scrubbing(call):
    return {**call.input, "token": "***"}


def echo(name="echo", **settings):
    return Tool(name, execute=lambda value: value, **settings)


# --- what they are told, and what they may change


@BOTH
def test_the_hooks_stand_around_validation_and_the_tool(run, kind):
    order = []

    class Checked(pydantic.BaseModel):
        token: str

        @pydantic.field_validator("token")
        @classmethod
        def note(cls, value):
            order.append(f"validate {value}")
            return value

    def execute(value):
        order.append(f"execute {value.token}")
        return {"got": value.token}

    tool = Tool("take", execute=execute, input_schema=Checked, needs_approval=lambda value: order.append("approve?"))
    options = hooks(
        lambda call: order.append(f"before {call.input}") or scrubbing(call),
        lambda call, output: order.append(f"after {call.input} {output}") or {"seen": True},
        kind,
    )
    assert run("return await tools.take({token: 'secret'})", [tool], options=options) == {"seen": True}
    assert [step for step in order if "validate" not in step] == [
        "before {'token': 'secret'}",
        "approve?",
        "execute ***",
        "after {'token': '***'} {'got': '***'}",
    ]
    assert order[0] == "validate secret"
    assert order[order.index("before {'token': 'secret'}") + 1] == "validate ***"


@BOTH
def test_a_call_is_a_frozen_value_with_everything_about_it(run, kind):
    told = []
    options = hooks(told.append, lambda call, _output: told.append(call), kind)
    context = {"user": 7}
    run("return await tools.echo({a: [1]})", [echo()], options=options, tool_call_id="outer", context=context)
    expected = PipelineCall(
        tool_name="echo", input={"a": [1]}, tool_call_id="outer:tool-1", outer_tool_call_id="outer", context=context
    )
    assert told == [expected, expected]
    assert told[0].source == "script"
    assert told[0].context is context
    with pytest.raises(FrozenInstanceError):
        told[0].input = {}


@BOTH
def test_copies_are_theirs_and_change_nothing(run, kind):
    def before(call):
        call.input["token"] = "changed"

    def after(call, output):
        call.input.clear()
        output["token"] = "changed"

    assert run("return await tools.echo({token: 'a'})", [echo()], options=hooks(before, after, kind)) == {"token": "a"}


@BOTH
@pytest.mark.parametrize("given", [None, False, 0, "", [], {}])
def test_none_changes_nothing_and_everything_else_is_a_value(run, kind, given):
    seen = []
    tool = Tool("echo", execute=lambda value: seen.append(value) or {"ran": True})
    options = hooks(lambda _call: given, lambda _call, _output: given, kind)
    result = run("return await tools.echo({a: 1})", [tool], options=options)
    assert (seen, result) == (([{"a": 1}], {"ran": True}) if given is None else ([given], given))


@BOTH
def test_the_word_for_null_puts_null_in_place_of_input_and_output(run, kind):
    seen = []
    tool = Tool("echo", execute=lambda value: seen.append(value) or 5)
    options = hooks(lambda _call: PIPELINE_NULL, lambda _call, _output: PIPELINE_NULL, kind)
    assert run("return [await tools.echo({a: 1})]", [tool], options=options) == [None]
    assert seen == [None]
    assert repr(PIPELINE_NULL) == "PIPELINE_NULL"


@BOTH
def test_nothing_is_none_and_stays_undefined_unless_it_is_replaced(run, kind):
    seen = []
    tool = Tool("nothing", execute=lambda _value: None)
    js = "const got = await tools.nothing(); return [got === undefined, got === null]"
    assert run(js, [tool], options=hooks(None, lambda _call, output: seen.append(output), kind)) == [True, False]
    assert run(js, [tool], options=hooks(None, lambda _call, _output: PIPELINE_NULL, kind)) == [False, True]
    assert seen == [None]


def test_exact_integers_pass_through_both(run):
    big = 2**63 + 1
    options = hooks(lambda call: {**call.input, "x": 1}, lambda _call, output: {**output, "y": big})
    js = f"const got = await tools.echo({{n: {big}n}}); return [String(got.n), got.x, String(got.y)]"
    assert run(js, [echo()], options=options) == [str(big), 1, str(big)]


@BOTH
def test_a_replaced_input_is_validated_again(run, kind):
    spy = Spy()
    tool = spy.tool("take", input_schema=Token)
    assert run("return await tools.take({token: 'a', count: 2})", [tool], options=hooks(scrubbing, kind=kind))
    assert run("return await tools.take({token: 'a', count: 2})", [tool], options=hooks(lambda _call: {"token": "b"}))
    assert spy.ran == [("take", Token(token="***", count=2)), ("take", Token(token="b", count=1))]


@BOTH
@pytest.mark.parametrize("wrong", [{}, {"token": "far too long"}, [], PIPELINE_NULL])
def test_a_replaced_input_that_is_no_input_runs_nothing(run, kind, wrong):
    spy = Spy()
    tool = spy.tool("take", input_schema=TOKEN)
    name, code, message = run(CATCH % "take({token: 'a'})", [tool], options=hooks(lambda _call: wrong, kind=kind))
    assert (name, code) == ("CodeModeToolError", "CODE_MODE_TOOL_ERROR")
    assert "Invalid input" in message
    assert spy.ran == []


@BOTH
@pytest.mark.parametrize("wrong", [object(), {"a": object()}, 10**1001, "x" * 3000, list(range(600))], ids=repr)
def test_a_replaced_input_that_is_no_json_or_too_much_fails_closed(run, kind, wrong):
    spy = Spy()
    options = hooks(lambda _call: wrong, kind=kind)
    limits = {"max_tool_input_bytes": 2000, "max_values": 512}
    answer = run(CATCH % "take({token: 'a'})", [spy.tool("take")], options=options, **limits)
    assert answer == ["Error", "CODE_MODE_HOST_TOOL_ERROR", "the tool failed"]
    assert spy.ran == []


@BOTH
@pytest.mark.parametrize("wrong", [object(), {"a": object()}, 10**1001, "x" * 3000, list(range(600))], ids=repr)
def test_a_replaced_output_is_checked_and_counted_as_any(fails, kind, wrong):
    options = hooks(None, lambda _call, _output: wrong, kind)
    error = fails(
        CodeModeSerializationError, "return await tools.echo(1)", [echo()], options=options,
        max_tool_output_bytes=2000, max_values=512,
    )  # fmt: skip
    assert error.message.startswith("the output of tool 'echo'")


def test_after_hears_of_an_output_that_is_valid_and_of_no_other(run):
    heard = []
    tool = echo(output_schema={"type": "integer"})
    options = hooks(None, lambda _call, output: heard.append(output) or "not validated again")
    assert run("return await tools.echo(5)", [tool], options=options) == "not validated again"
    assert "Invalid output" in run(CATCH % "echo('x')", [tool], options=options)[2]
    assert heard == [5]


def test_sync_hooks_leave_the_event_loop_alone(run):
    threads = []
    note = lambda *_: threads.append(threading.current_thread())  # noqa: E731
    run("return await tools.echo(1)", [echo()], options=hooks(note, note))
    assert len(threads) == 2
    assert threading.main_thread() not in threads


def test_every_call_goes_through_them_and_other_requests_do_not(run):
    heard = []
    options = hooks(lambda call: heard.append((call.tool_name, call.input)))
    js = """
      await tools.$search("echo"); await tools.$describe("echo");
      const add = (n) => tools.echo(n);
      await Promise.all([add(1), add(2), tools["echo"](3)]);
      try { await tools[["no", "ne"].join("")](4) } catch {}
    """
    run(js, [echo()], options=options)
    assert sorted(heard) == [("echo", 1), ("echo", 2), ("echo", 3)]


# --- refusals and failures


@BOTH
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_refusal_is_read_by_the_program(run, fails, kind, side):
    def refuse(*_):
        raise CodeModeToolError("not on a Sunday", code="CLOSED")

    spy = Spy()
    options = hooks(**{side: refuse}, kind=kind)
    answer = run(CATCH % "take(1)", [spy.tool("take")], options=options)
    assert answer == ["CodeModeToolError", "CLOSED", "not on a Sunday"]
    error = fails(CodeModeToolError, "return await tools.take(1)", [spy.tool("take")], options=options)
    assert (error.message, error.code) == ("not on a Sunday", "CLOSED")
    assert len(spy.ran) == (2 if side == "after" else 0)


async def _cancelled_inside(*_):
    task = asyncio.get_running_loop().create_future()
    task.cancel()
    await task


def _raise(error):
    def hook(*_):
        raise error

    return hook


BROKEN = {
    "an error": _raise(ValueError("SECRET")),
    "an error of ours that refuses nothing": _raise(CodeModeTimeoutError("SECRET")),
    "an exit": _raise(SystemExit("SECRET")),
    "the end of an iterator": _raise(StopIteration("SECRET")),
    "a group": _raise(ExceptionGroup("SECRET", [ValueError("SECRET")])),
    "a pause": lambda *_: request_interrupt({"kind": "SECRET"}),
    "a cancellation inside": _cancelled_inside,
    "a wrong signature": lambda: None,
}


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("broken", BROKEN)
def test_whatever_else_a_hook_does_is_hidden_and_fails_the_call(run, fails, caplog, side, broken):
    spy = Spy()
    options = hooks(**{side: BROKEN[broken]}, approval=PAUSING["approval"])
    with caplog.at_level(logging.ERROR, "codemode.tools"):
        answer = run(CATCH % "take(1)", [spy.tool("take")], options=options)
    assert answer == ["Error", "CODE_MODE_HOST_TOOL_ERROR", "the tool failed"]
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "the pipeline failed for a call of tool 'take'"
    ]
    assert caplog.records[0].exc_info is not None
    error = fails(CodeModeToolError, "return await tools.take(1)", [spy.tool("take")], options=options)
    assert error.__cause__ is not None
    assert len(spy.ran) == (2 if side == "after" else 0)


def test_wrong_hooks_are_wrong_options():
    with pytest.raises(ValueError, match=r"pipeline\.before must be a function or None, got 3"):
        Pipeline.of({"before": 3})
    with pytest.raises(ValueError, match=r"pipeline\.befor is not an option; did you mean 'before'"):
        Pipeline.of({"befor": print})


# --- time


def hanging(started, released):
    """Return a sync and an async hook that say that they have begun and go on when they may."""

    def blocks(*_):
        started.set()
        assert released.wait(20)

    async def waits(*_):
        started.set()
        await asyncio.Event().wait()

    return {"sync": blocks, "async": waits}


@BOTH
def test_a_hook_is_part_of_the_time_of_a_call(run, kind):
    started, released, spy, events = threading.Event(), threading.Event(), Spy(), []
    options = {
        "pipeline": {"before": hanging(started, released)[kind]},
        "lifecycle": {"on_nested_tool_call": events.append, "on_nested_tool_result": events.append},
    }
    try:
        answer = run(CATCH % "take({token: 'x'})", [spy.tool("take")], options=options, tool_timeout_ms=50)
    finally:
        released.set()
    assert "did not answer within 50 ms" in answer[2]
    assert started.is_set()
    assert spy.ran == []
    assert [(type(event).__name__, event.input) for event in events] == [
        ("NestedToolCallEvent", None),
        ("NestedToolResultEvent", None),
    ]


@BOTH
def test_a_program_that_ends_while_a_hook_judges_has_not_begun_the_call(within, kind):
    started, released, spy = threading.Event(), threading.Event(), Spy()
    options = {"pipeline": {"before": hanging(started, released)[kind]}}
    tools = [spy.tool("take")]

    async def cancelled():
        task = asyncio.create_task(run_code_mode("return await tools.take({token: 'x'})", tools, options=options))
        assert await asyncio.to_thread(started.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value.__cause__

    try:
        error = within(cancelled())
    finally:
        released.set()
    assert isinstance(error, CodeModeAbortedError)
    assert spy.ran == []
    assert [(call["name"], call["is_started"]) for call in error.calls] == [("take", False)]
    assert [(one.status, one.input) for one in error.trace.bridge_requests] == [("aborted", None)]


# --- people


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
def test_a_recovery_shows_and_repeats_what_ran(annotations):
    asked, given = [], []

    async def hangs(value):
        given.append(value)
        if len(given) == 1:
            await asyncio.Event().wait()
        return value

    tools = [Tool("hang", execute=hangs, annotations=annotations)]
    options = hooks(lambda call: asked.append(call.input) or scrubbing(call), **PAUSING)
    with pytest.raises(CodeModeError) as caught:
        start("return await tools.hang({token: 'secret'})", tools, {**options, "execution_policy": {"timeout_ms": 250}})
    recovery = caught.value.recovery
    answer = [] if annotations else [{"runAgain": True}]
    assert [request.input for request in recovery.requests] == ([] if annotations else [{"token": "***"}])
    assert go_on(recovery, tools, *answer, options=options) == {"token": "***"}
    assert given == [{"token": "***"}] * 2
    assert asked == [{"token": "secret"}]
    # Also where nobody knows the tool any more.
    assert "secret" not in str([request.to_dict() for request in recovery.requests])
