"""Messages for a client that watches a run: around every call, and what the program says; in order, and once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from suite import each_row
from waiting import within

from codemode import CodeModeAbortedError, CodeModeToolError, Lifecycle
from codemode.observe.meta_tools import NotificationListener
from codemode.observe.reporter import InvocationReporter
from codemode.protocol.ledger import Fulfilled, LedgerEntry, Rejected, Waiting

CALL = LedgerEntry(1, "tool", "pay", '{"cents":3}', tool_call_id="outer:tool-1")
FIELDS = json.dumps({"code": "CLOSED", "message": "not today", "toolName": "pay"})


def told(scenario: Any, notify: Any = None, **reporter: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    lifecycle = reporter.pop("lifecycle", Lifecycle())

    async def run() -> None:
        listeners = (NotificationListener(notify or messages.append),)
        await scenario(InvocationReporter(lifecycle, "invocation", "outer", listeners, **reporter))

    within(run())
    return messages


async def one_call(events: InvocationReporter, outcome: Any = None, error: Any = None, entry: Any = CALL) -> None:
    events.report_call_end(events.report_call_start(entry), outcome or Fulfilled("1"), error)
    await events.report_end_and_create_trace()


def test_a_call_is_told_of_twice():
    start, end = told(one_call)
    assert start == {"type": "tool_call_start", "toolName": "pay", "input": {"cents": 3}, "callId": "outer:tool-1"}
    assert end.pop("durationMs") >= 0
    assert end == {"type": "tool_call_end", "toolName": "pay", "callId": "outer:tool-1", "status": "ok"}


def test_an_error_is_told_as_the_program_reads_it():
    error = CodeModeToolError("tool 'pay' failed", code="CODE_MODE_HOST_TOOL_ERROR")
    error.__cause__ = ValueError("the host's own words")
    for outcome, expected in (
        (Rejected("Error", "the tool failed", "C"), {"name": "Error", "message": "the tool failed", "code": "C"}),
        (Rejected("E", "m", "C", FIELDS), {"name": "Error", "message": "not today", "code": "CLOSED"}),
    ):
        _, end = told(lambda events, outcome=outcome: one_call(events, outcome, error))
        assert (end["status"], end["error"]) == ("error", expected)
        assert "own words" not in json.dumps(end)


def test_a_call_that_the_run_did_not_wait_for_has_failed():
    async def scenario(events: InvocationReporter) -> None:
        events.report_call_start(CALL)
        await events.report_end_and_create_trace(error=CodeModeAbortedError("stop"))

    _, end = told(scenario)
    assert end["error"]["code"] == "CODE_MODE_ABORTED"


def test_a_call_that_waits_is_begun_once_and_ended_once():
    paused = Waiting("i", '{"kind":"approval"}', "{}", 1)
    first = told(lambda events: one_call(events, paused))
    again = told(lambda events: one_call(events, entry=CALL._replace(outcome=paused)))
    assert [one["type"] for one in [*first, *again]] == ["tool_call_start", "tool_call_end"]
    # One whose outcome nobody knows has ended for whoever watched it: it is made anew.
    unknown = Waiting("i", '{"kind":"code-mode/unknown-outcome"}', "{}", 1)
    assert len(told(lambda events: one_call(events, entry=CALL._replace(outcome=unknown)))) == 2


def test_nothing_is_told_again():
    async def scenario(events: InvocationReporter) -> None:
        events.report_call_end(events.report_call_start(CALL, replayed=True), Fulfilled("1"), None)
        events.report_still_waiting_call(CALL._replace(id=2, outcome=Waiting("i", '{"kind":"approval"}', "{}", 1)))
        await events.report_end_and_create_trace()

    assert told(scenario) == []


def test_other_requests_are_not_told_of():
    async def scenario(events: InvocationReporter) -> None:
        for entry in (
            LedgerEntry(1, "fetch", "fetch", '{"url":"https://example.com","method":"GET"}'),
            LedgerEntry(2, "catalog", "$search", '"x"'),
        ):
            events.report_call_end(events.report_call_start(entry), Fulfilled("1"), None)
        events.report_console_line("log", "x")
        await events.report_end_and_create_trace()

    assert told(scenario) == []


def test_what_the_program_says_is_passed_on():
    async def scenario(events: InvocationReporter) -> None:
        events.report_guest_message("log", '{"level":"info","message":"half","metadata":{"n":1}}')
        events.report_guest_message("log", '{"level":"warn","message":"done"}')
        events.report_guest_message("notify", '{"event":"progress","payload":[1,null]}')
        events.report_guest_message("notify", '{"event":"end"}')

    assert told(scenario) == [
        {"type": "log", "level": "info", "message": "half", "metadata": {"n": 1}},
        {"type": "log", "level": "warn", "message": "done", "metadata": None},
        {"type": "notify", "event": "progress", "payload": [1, None]},
        {"type": "notify", "event": "end", "payload": None},
    ]


def test_messages_and_their_values_belong_to_whoever_gets_them():
    heard: list[Any] = []

    def spoil(message: dict[str, Any]) -> None:
        message.get("input", {}).clear()
        message.clear()

    lifecycle = Lifecycle(on_nested_tool_call=lambda event: heard.append(event.input))
    told(one_call, spoil, lifecycle=lifecycle)
    assert heard == [{"cents": 3}]


def test_hidden_inputs_are_told_as_far_as_they_may_be_seen():
    async def scenario(events: InvocationReporter) -> None:
        call = events.report_call_start(CALL)
        events.report_delayed_call_start(call, '{"cents":"*"}')
        events.report_call_end(call, Fulfilled("1"), None)
        refused = events.report_call_start(CALL._replace(id=2))
        events.report_call_end(refused, Rejected("E", "no", "C"), CodeModeToolError("no"))

    messages = told(scenario, hides_inputs=True)
    assert [one.get("input", "-") for one in messages] == [{"cents": "*"}, "-", None, "-"]


def test_async_messages_arrive_one_after_another():
    log: list[str] = []

    async def notify(message: dict[str, Any]) -> None:
        log.append(f"begin {message['event']}")
        for _ in range(5 - int(message["event"])):
            await asyncio.sleep(0)
        log.append(f"end {message['event']}")

    async def scenario(events: InvocationReporter) -> None:
        for number in range(5):
            events.report_guest_message("notify", json.dumps({"event": str(number)}))
        await events.report_end_and_create_trace()

    told(scenario, notify)
    assert log == [f"{what} {number}" for number in range(5) for what in ("begin", "end")]


@each_row("kind", ["sync", "async"])
@each_row("error", [ValueError("x"), SystemExit(1), asyncio.CancelledError()])
def test_what_it_raises_is_reported_and_stops_nothing(kind: str, error: BaseException):
    failed: list[str] = []
    seen: list[str] = []

    def now(message: dict[str, Any]) -> None:
        seen.append(message["type"])
        raise error

    async def later(message: dict[str, Any]) -> None:
        now(message)

    lifecycle = Lifecycle(on_hook_error=lambda _error, info: failed.append(info["hook"]))
    told(one_call, now if kind == "sync" else later, lifecycle=lifecycle)
    assert seen == ["tool_call_start", "tool_call_end"]
    assert failed == ["notify", "notify"]


def test_one_that_hangs_is_given_up_with_all_behind_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("codemode.observe.reporter._GRACE_SECONDS", 0.05)
    seen: list[str] = []

    async def notify(message: dict[str, Any]) -> None:
        seen.append(message["type"])
        await asyncio.Event().wait()

    told(one_call, notify)
    assert seen == ["tool_call_start"]
