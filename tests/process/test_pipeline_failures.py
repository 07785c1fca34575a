"""Hooks around every call that refuse, fail or take their time."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from pausing import PAUSING, Spy
from pipeline_hooks import BOTH, CATCH, hooks

from codemode import (
    CodeModeAbortedError,
    CodeModeTimeoutError,
    CodeModeToolError,
    Pipeline,
    failure_text,
    request_interrupt,
    run_code_mode,
)

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


SEEN = {
    "before": ["Error", "CODE_MODE_HOST_TOOL_ERROR", "the tool failed"],
    "after": [
        "CodeModeToolError",
        "CODE_MODE_TOOL_ERROR",
        "the host could not process the output of tool 'take'; the call was made and must not be repeated.",
    ],
}


@pytest.mark.parametrize("side", SEEN)
@pytest.mark.parametrize("broken", BROKEN)
def test_whatever_else_a_hook_does_is_hidden_and_fails_the_call(run, fails, caplog, side, broken):
    spy = Spy()
    options = hooks(**{side: BROKEN[broken]}, approval=PAUSING["approval"])
    with caplog.at_level(logging.ERROR, "codemode.tools"):
        answer = run(CATCH % "take(1)", [spy.tool("take")], options=options)
    assert answer == SEEN[side]
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "the pipeline failed for a call of tool 'take'"
    ]
    assert caplog.records[0].exc_info is not None
    error = fails(CodeModeToolError, "return await tools.take(1)", [spy.tool("take")], options=options)
    assert error.__cause__ is not None
    assert "not the program's fault: the host's own code" in failure_text(error, "")
    assert len(spy.ran) == (2 if side == "after" else 0)


def test_wrong_hooks_are_wrong_options():
    with pytest.raises(ValueError, match=r"pipeline\.before must be a function or None, got 3"):
        Pipeline.of({"before": 3})
    with pytest.raises(ValueError, match=r"pipeline\.befor is not an option; did you mean 'before'"):
        Pipeline.of({"befor": print})


# --- time


def hanging(started, released, then=lambda: None):
    """Return a sync and an async hook that say that they have begun and go on when they may."""

    def blocks(*_):
        started.set()
        then()
        assert released.wait(60)

    async def waits(*_):
        started.set()
        then()
        await asyncio.Event().wait()

    return {"sync": blocks, "async": waits}


@BOTH
def test_a_hook_is_part_of_the_time_of_a_call(run, passing_time, kind):
    started, released, spy, events = threading.Event(), threading.Event(), Spy(), []
    minutes = {"timeout_ms": 300_000, "tool_timeout_ms": 60_000}
    options = {
        "pipeline": {"before": hanging(started, released, lambda: passing_time.skip(61))[kind]},
        "lifecycle": {"on_nested_tool_call": events.append, "on_nested_tool_result": events.append},
    }
    try:
        answer = run(CATCH % "take({token: 'x'})", [spy.tool("take")], options=options, **minutes)
    finally:
        released.set()
    assert "did not answer within 60000 ms" in answer[2]
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
