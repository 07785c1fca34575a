"""Events, the hooks that hear them, and the trace that is made of them; without a worker."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import fields

import pytest
from suite import each_row
from waiting import within

from codemode import CodeModeAbortedError, Lifecycle
from codemode.interrupts.interrupt import InterruptRequested
from codemode.observe.reporter import _HOOK_BY_EVENT, InvocationReporter
from codemode.protocol.ledger import Fulfilled, LedgerEntry, Rejected, Waiting
from codemode.trace.events import FetchResultEvent, NestedToolCallEvent, NestedToolResultEvent
from codemode.trace.trace import Trace

CALL = LedgerEntry(1, "tool", "pay", '{"cents":3}', tool_call_id="outer:tool-1")
FETCH = LedgerEntry(2, "fetch", "fetch", '{"url":"https://example.com/x","method":"get","body":"secret"}')
BAD_ENDS = [ValueError("hook"), asyncio.CancelledError(), SystemExit(3), InterruptRequested({"kind": "k"})]


def told(scenario, *, listeners=(), **hooks):
    """Run a scenario over events with these hooks, and return what it returns."""

    async def run():
        return await scenario(InvocationReporter(Lifecycle(**hooks), "invocation", "outer", listeners))

    return within(run())


async def one_call(events):
    call = events.report_call_start(CALL)
    events.report_call_end(call, Fulfilled('{"ok":true}'), None)
    return await events.report_end_and_create_trace(result_bytes=4)


def test_a_call_is_told_of_twice_and_stands_in_the_trace():
    heard = []
    trace = told(one_call, on_nested_tool_call=heard.append, on_nested_tool_result=heard.append, on_trace=heard.append)
    call, result, last = heard
    assert type(call) is NestedToolCallEvent
    assert (call.bridge_index, call.tool_name, call.input, call.input_bytes) == (1, "pay", {"cents": 3}, 11)
    assert (result.status, result.output, result.output_bytes) == ("fulfilled", {"ok": True}, 11)
    assert result.duration_ms == result.completed_at_ms - result.started_at_ms >= 0
    assert last is trace
    assert trace.bridge_requests == (result,)
    assert (trace.status, trace.result_bytes, trace.error) == ("completed", 4, None)
    assert trace.started_at_ms <= call.started_at_ms <= trace.completed_at_ms


def test_dictionaries_have_the_ai_sdks_keys_and_are_json():
    async def scenario(events):
        events.report_start("return 1")
        events.report_call_end(events.report_call_start(CALL), Rejected("E", "m", "C"), CodeModeAbortedError("gone"))
        events.report_console_line("warn", "careful")
        return await events.report_end_and_create_trace(error=CodeModeAbortedError("all gone"))

    plain = told(scenario).to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert set(plain) == {
        "invocationId", "outerToolCallId", "status", "startedAtMs", "completedAtMs", "durationMs", "bridgeRequests",
        "console", "sourceBytes", "error",
    }  # fmt: skip
    assert plain["error"] == {"name": "CodeModeAbortedError", "message": "all gone", "code": "CODE_MODE_ABORTED"}
    (request,) = plain["bridgeRequests"]
    assert (request["toolName"], request["toolCallId"], request["status"]) == ("pay", "outer:tool-1", "rejected")
    assert plain["console"][0]["text"] == "careful"


def test_fetch_events_have_no_bodies():
    heard = []

    async def scenario(events):
        call = events.report_call_start(FETCH)
        events.report_call_end(call, Fulfilled('{"status":200,"body":"hidden"}'), None)
        await events.report_end_and_create_trace()

    told(scenario, on_fetch_request=heard.append, on_fetch_result=heard.append)
    request, result = heard
    assert (request.url, request.method, request.bridge_index) == ("https://example.com/x", "GET", 2)
    assert isinstance(result, FetchResultEvent)
    assert (result.http_status, result.status) == (200, "fulfilled")
    assert "hidden" not in json.dumps(result.to_dict())
    assert "secret" not in json.dumps(result.to_dict())


def test_a_call_that_the_invocation_did_not_wait_for_ends_as_aborted():
    heard = []

    async def scenario(events):
        call = events.report_call_start(CALL)
        trace = await events.report_end_and_create_trace(error=CodeModeAbortedError("stop"))
        events.report_call_end(call, Fulfilled("1"), None)  # too late: it has been told already
        return trace

    trace = told(scenario, on_nested_tool_result=heard.append)
    assert [event.status for event in heard] == ["aborted"]
    assert isinstance(heard[0].error, CodeModeAbortedError)
    assert trace.bridge_requests == tuple(heard)


def test_what_still_waits_is_told_once():
    waiting = LedgerEntry(1, "tool", "pay", "{}", tool_call_id="t", outcome=Waiting("i", '{"kind":"k"}', "{}", 1))

    async def scenario(events):
        events.report_still_waiting_call(waiting)
        events.report_still_waiting_call(waiting)
        return await events.report_end_and_create_trace(interrupted_by="interrupt")

    (request,) = told(scenario).bridge_requests
    assert (request.status, request.replayed, request.interrupt) == ("interrupted", True, {"kind": "k"})


@each_row("error", BAD_ENDS)
@each_row("kind", ["sync", "async"])
def test_whatever_a_hook_raises_changes_nothing(error, kind):
    reports = []

    def raise_now(_event):
        raise error

    async def raise_later(_event):
        await asyncio.sleep(0)
        raise error

    hook = raise_now if kind == "sync" else raise_later
    trace = told(
        one_call, on_nested_tool_result=hook, on_trace=hook, on_hook_error=lambda e, info: reports.append((e, info))
    )
    assert trace.status == "completed"
    assert sorted(info["hook"] for _, info in reports) == ["on_nested_tool_result", "on_trace"]
    assert all(reported is error for reported, _ in reports)
    assert {type(info["event"]) for _, info in reports} == {NestedToolResultEvent, Trace}


@each_row("kind", ["sync", "async"])
@each_row("error", BAD_ENDS)
def test_whatever_the_error_hook_raises_is_swallowed(error, kind):
    def fail(*_):
        raise ValueError("hook")

    def raise_now(*_):
        raise error

    async def raise_later(*_):
        raise error

    report = raise_now if kind == "sync" else raise_later
    assert told(one_call, on_trace=fail, on_hook_error=report).status == "completed"


def test_ctrl_c_inside_a_hook_is_not_swallowed():
    def press(_event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        told(one_call, on_trace=press)


def test_a_listener_that_fails_costs_the_hooks_nothing():
    heard = []

    def broken(_event):
        raise ValueError("listener")

    assert told(one_call, listeners=(broken,), on_trace=heard.append).status == "completed"
    assert len(heard) == 1


def test_async_hooks_begin_in_order_and_hold_up_nothing_but_the_end():
    begun, ended = [], []
    gate: list[asyncio.Event] = []

    async def hook(event):
        begun.append(type(event).__name__)
        await gate[0].wait()
        ended.append(type(event).__name__)

    async def scenario(events):
        gate.append(asyncio.Event())
        call = events.report_call_start(CALL)
        events.report_call_end(call, Fulfilled("1"), None)
        assert not ended
        asyncio.get_running_loop().call_soon(gate[0].set)
        await events.report_end_and_create_trace()

    told(scenario, on_nested_tool_call=hook, on_nested_tool_result=hook, on_trace=hook)
    assert begun == ["NestedToolCallEvent", "NestedToolResultEvent", "Trace"]
    assert sorted(ended) == begun


def test_a_hook_that_never_ends_is_cancelled(monkeypatch):
    monkeypatch.setattr("codemode.observe.reporter._GRACE_SECONDS", 0.05)
    cancelled = []

    async def hang(_event):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def scenario(events):
        trace = await one_call(events)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()} or cancelled
        return trace

    assert told(scenario, on_trace=hang).status == "completed"
    assert cancelled == [True]


def test_cancelling_the_caller_cancels_the_hooks_that_it_waits_for():
    cancelled, begun = [], []

    async def hang(_event):
        begun[0].set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    async def scenario(events):
        begun.append(asyncio.Event())
        ending = asyncio.create_task(one_call(events))
        await begun[0].wait()
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        await asyncio.sleep(0)

    told(scenario, on_trace=hang)
    assert cancelled == [True]


def test_the_time_that_hooks_take_is_counted():
    def block(_event):
        time.sleep(0.02)

    async def scenario(events):
        before = events.hooks.seconds
        await one_call(events)
        return before, events.hooks.seconds

    started = time.perf_counter()
    before, after = told(scenario, on_nested_tool_call=block)
    assert before == 0
    assert 0.02 <= after <= time.perf_counter() - started


def test_each_hook_hears_one_kind_of_event():
    assert sorted(_HOOK_BY_EVENT.values()) == sorted({one.name for one in fields(Lifecycle)} - {"on_hook_error"})


def test_events_that_nobody_hears_are_not_made(monkeypatch):
    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr("codemode.observe.reporter.create_start_event", refuse)
    heard = []
    told(one_call, on_trace=heard.append, on_nested_tool_result=heard.append)
    assert [type(event) for event in heard] == [NestedToolResultEvent, Trace]
