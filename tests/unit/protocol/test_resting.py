"""An invocation that may rest: when it does, what it keeps meanwhile, and how another one goes on in its place."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from invocation_driver import SETTINGS
from invocation_events import WAITING, assert_violation, call, done, error_of, returned, threw
from suite import each_row

from codemode.errors import (
    CodeModeBridgeLimitError,
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeToolError,
)
from codemode.profile import OutputRules
from codemode.protocol import events
from codemode.protocol.continuation import Continuation
from codemode.protocol.events import (
    CallerWaitExpired,
    ContinueRequested,
    ReportQueuedOutcome,
    SendMessage,
    SuspendProgram,
)
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry, ProgramProgress, Rejected
from codemode.protocol.message_decoder import decode_message
from codemode.protocol.messages import CallRequested, ConsoleWritten, OutputItemWritten, RequestWithdrawn, TurnEnded
from codemode.protocol.suspension import SuspendableInvocation, answer_open_yields

KINDS = SETTINGS.profile.request_kinds | {"timer", "yield"}
PROFILE = replace(
    SETTINGS.profile, request_kinds=KINDS, unawaited="drain", at_deadline="rest", output=OutputRules(max_bytes=100)
)
SETTING = replace(SETTINGS, profile=PROFILE)


def started(*received: Any, settings: Any = SETTING, **more: Any) -> SuspendableInvocation:
    invocation = SuspendableInvocation(settings, **more)
    invocation.start("js", analysis_ms=None)
    for event in received:
        invocation.receive(event)
    return invocation


def yielded(number: int, reason: str | None = None) -> CallRequested:
    return CallRequested(number, "yield", "yield_control", reason, None)


def timer(number: int) -> CallRequested:
    return CallRequested(number, "timer", "setTimeout", "5", None)


def sent(effects: list[Any]) -> list[int]:
    return [
        effect.message.id for effect in effects if isinstance(effect, SendMessage) and hasattr(effect.message, "id")
    ]


def again(invocation: SuspendableInvocation, *received: Any) -> tuple[SuspendableInvocation, list[Any]]:
    """Go on in the place of one whose worker was given up; the effects of all that is received."""
    new = invocation.answer_yields_and_create_successor(50)
    effects = new.start("js", analysis_ms=None)
    for event in received:
        effects += new.receive(event)
    return new, effects


# --- coming to rest ---


@pytest.mark.parametrize(
    "received", [(yielded(1), TurnEnded(0)), (call(1), yielded(2), TurnEnded(1)), (timer(1), yielded(2), TurnEnded(0))]
)
def test_an_idle_guest_that_has_yielded_rests_whatever_is_in_flight(received: tuple[Any, ...]):
    *before, last = received
    invocation = started(*before)
    assert invocation.receive(last)[-1] == SuspendProgram("yield")
    assert (invocation.suspension_reason, invocation.has_pending_deliveries, invocation.ending) == ("yield", True, None)


def test_an_idle_guest_rests_when_the_wait_is_over_and_not_before():
    invocation = started(call(1), TurnEnded(1))
    assert invocation.suspension_reason is None
    assert invocation.receive(CallerWaitExpired()) == [SuspendProgram("pending_tools")]
    invocation = started(call(1), CallerWaitExpired())
    assert invocation.suspension_reason is None
    assert invocation.receive(TurnEnded(1))[-1] == SuspendProgram("pending_tools")


def test_a_timer_is_waited_for_like_a_call():
    assert started(timer(1), TurnEnded(0), CallerWaitExpired()).suspension_reason == "pending_tools"


def test_a_guest_that_computes_does_not_rest_and_fails_when_its_time_is_up():
    invocation = started(CallerWaitExpired())
    assert (invocation.suspension_reason, invocation.ending) == (None, None)
    invocation.receive(events.DeadlinePassed())
    assert type(error_of(invocation)) is CodeModeTimeoutError


def test_with_nothing_in_flight_there_is_no_rest():
    assert error_of(started(CallerWaitExpired(), TurnEnded(0))).code == "CODE_MODE_DEADLOCK"
    assert started(call(1), TurnEnded(1), done(1, WAITING)).ending == events.Interrupted()
    assert started(call(1), TurnEnded(1), CallerWaitExpired(), done(1, WAITING)).suspension_reason == "pending_tools"


# --- the clocks ---


def test_the_guests_clock_stands_while_it_is_idle_and_the_wait_while_only_a_person_is_asked():
    invocation = started(call(1), call(2), timer(3))
    assert events.PauseDeadlineClock() in invocation.receive(TurnEnded(2))
    assert invocation.receive(events.PersonAsked(1)) == []
    assert events.ResumeDeadlineClock() in invocation.receive(events.CallSettled(3, Fulfilled(None), 9))
    assert events.PauseDeadlineClock() in invocation.receive(TurnEnded(2))
    invocation.receive(done(2))
    assert invocation.receive(TurnEnded(1)) == [events.PauseDeadlineClock(), events.PauseWaitClock()]
    assert invocation.receive(events.PersonAnswered(1)) == [events.ResumeWaitClock()]


# --- at rest ---


def test_what_comes_at_rest_is_kept_and_handed_in_behind_one_another():
    invocation = started(call(1), call(2), call(3), TurnEnded(3), CallerWaitExpired())
    assert invocation.receive(done(2)) == [ReportQueuedOutcome(2)]
    assert invocation.receive(done(1, Rejected("E", "no", "C"))) == [ReportQueuedOutcome(1)]
    assert (invocation.ledger.deliveries, invocation.has_pending_deliveries) == ([2, 1], True)
    effects = invocation.receive(ContinueRequested(9))
    assert (sent(effects), invocation.suspension_reason, invocation.has_pending_deliveries) == ([2, 1], None, False)
    for event in (TurnEnded(2), TurnEnded(1)):
        invocation.receive(event)
    assert invocation.ending is None


def test_what_waits_for_a_person_at_rest_interrupts_when_somebody_goes_on():
    invocation = started(call(1), TurnEnded(1), CallerWaitExpired(), done(1, WAITING))
    assert (invocation.ending, invocation.has_pending_deliveries, invocation.has_running_requests) == (
        None,
        False,
        False,
    )
    assert invocation.receive(ContinueRequested(9)) == [events.FinishInvocation(events.Interrupted())]


def test_yields_are_answered_behind_what_came_meanwhile_at_the_time_of_going_on():
    invocation = started(yielded(1), call(2), yielded(3), TurnEnded(1), done(2))
    assert sent(invocation.receive(ContinueRequested(77))) == [2, 1, 3]
    assert [invocation.ledger[number].now_ms for number in (1, 3)] == [77, 77]
    assert [invocation.ledger[number].outcome for number in (1, 3)] == [Fulfilled(None)] * 2


def test_a_worker_that_speaks_or_ends_at_rest():
    assert_violation(started(yielded(1), TurnEnded(0), TurnEnded(0)))
    assert started(yielded(1), TurnEnded(0), events.WorkerEnded("gone")).ending is None
    assert started(yielded(1), events.WorkerEnded("gone")).ending is not None


def test_the_wait_is_over_once_for_each_time_that_somebody_goes_on():
    invocation = started(call(1), call(2), TurnEnded(2), CallerWaitExpired(), done(1), ContinueRequested(9))
    invocation.receive(TurnEnded(1))
    assert invocation.suspension_reason is None
    assert invocation.receive(CallerWaitExpired()) == [SuspendProgram("pending_tools")]


def test_going_on_with_what_does_not_rest_changes_nothing():
    assert started(call(1), TurnEnded(1)).receive(ContinueRequested(9)) == []


# --- on another worker ---


def test_another_worker_is_sent_all_that_was_delivered_and_no_call_is_made_again():
    invocation = started(call(1), call(2), timer(3), TurnEnded(2), done(2), TurnEnded(1), CallerWaitExpired(), done(1))
    new, effects = again(invocation, call(1), call(2), timer(3), TurnEnded(2), TurnEnded(1), TurnEnded(0))
    assert sent(effects) == [2, 1]
    assert not [one for one in effects if isinstance(one, events.PerformRequest | events.StartTimers)]
    assert new.ledger.deliveries == [2, 1]
    assert sent(new.receive(events.CallSettled(3, Fulfilled(None), 9))) == [3]


def test_its_replay_ends_where_the_guest_had_come_to():
    invocation = started(call(1), call(2), TurnEnded(2), done(2), TurnEnded(1), CallerWaitExpired(), done(1))
    assert invocation.turn_count == 2
    new, _ = again(invocation, call(1), call(2))
    assert (new.is_replaying, new.turn_count) == (True, 2)
    assert events.ReportReplayEnd() not in new.receive(TurnEnded(2))
    assert events.ReportReplayEnd() in new.receive(TurnEnded(1))
    assert not new.is_replaying


def test_what_ends_during_a_replay_is_delivered_behind_what_was_recorded():
    invocation = started(call(1), call(2), call(3), TurnEnded(3), done(2), TurnEnded(2), CallerWaitExpired())
    new, effects = again(invocation)
    assert sent(effects) == [2]
    assert sent(new.receive(done(3))) == [3]  # its request has not been made again yet
    for event in (call(1), call(2), call(3)):
        new.receive(event)
    assert sent(new.receive(done(1))) == [1]  # its turn has not ended yet
    effects = [one for left in (3, 2, 1, 0) for one in new.receive(TurnEnded(left))]
    assert not [one for one in effects if isinstance(one, events.PerformRequest | SendMessage)]
    assert new.ledger.deliveries == [2, 3, 1]
    assert error_of(new).code == "CODE_MODE_DEADLOCK"  # of this guest, which does nothing with its answers


def test_what_begins_to_wait_for_a_person_during_a_replay_is_not_made_again():
    invocation = started(call(1), TurnEnded(1), CallerWaitExpired())
    new, _ = again(invocation)
    assert new.receive(done(1, WAITING)) == []
    new.receive(call(1))
    assert new.receive(TurnEnded(1))[-1] == events.FinishInvocation(events.Interrupted())
    assert new.ledger.waiting_entries


def test_a_tool_that_begins_at_rest_or_during_a_replay_is_known_to_have_begun():
    invocation = started(call(1), call(2), TurnEnded(2), CallerWaitExpired())
    invocation.receive(events.ToolStarted(1, None, is_approved=False))
    new, _ = again(invocation)
    new.receive(events.ToolStarted(2, '"shown"', is_approved=True))
    assert [new.get_entry(number).is_started for number in (1, 2)] == [True, True]
    for event in (call(1), call(2), TurnEnded(2)):
        new.receive(event)
    assert [entry.is_started for entry in new.ledger.entries] == [True, True]


def test_a_host_error_that_came_before_a_replay_is_still_the_hosts_own():
    error = CodeModeToolError("no")
    invocation = started(call(1), TurnEnded(1), CallerWaitExpired())
    invocation.receive(events.CallSettled(1, Rejected("E", "no", "C"), 5, error))
    new, _ = again(invocation, call(1), TurnEnded(1), threw(request_id=1))
    assert error_of(new) is error or type(error_of(new)) is CodeModeToolError


def test_a_timer_that_runs_meanwhile_can_be_withdrawn():
    invocation = started(timer(1), call(2), TurnEnded(1), CallerWaitExpired(), done(2))
    new, _ = again(invocation, timer(1), call(2), TurnEnded(1))
    assert new.receive(RequestWithdrawn(1)) == [events.CancelTimer(1)]


def test_a_program_that_goes_another_way_is_refused():
    invocation = started(call(1), TurnEnded(1), CallerWaitExpired())
    assert_violation(again(invocation, call(1, name="other"))[0])
    assert_violation(again(invocation, TurnEnded(0))[0])
    assert_violation(again(invocation, returned())[0])


def test_a_run_can_rest_in_the_middle_and_forgets_nothing():
    invocation = started(call(1), call(2), TurnEnded(2), done(1), call(3))
    invocation.suspend_now()
    assert invocation.receive(done(2)) == [ReportQueuedOutcome(2)]
    _, effects = again(invocation, call(1), call(2), TurnEnded(2), call(3), TurnEnded(2), TurnEnded(1))
    assert sent(effects) == [1, 2]
    assert [one.entry.id for one in effects if isinstance(one, events.PerformRequest)] == [3]


def test_a_run_that_rests_in_the_middle_of_a_replay_forgets_nothing_either():
    invocation = started(call(1), call(2), TurnEnded(2), done(1), TurnEnded(1), CallerWaitExpired())
    new, _ = again(invocation, call(1))
    new.suspend_now()
    assert new.receive(done(2)) == [ReportQueuedOutcome(2)]
    assert new.turn_count == 2
    last, effects = again(new, call(1), call(2), TurnEnded(2), TurnEnded(1), TurnEnded(0))
    assert sent(effects) == [1, 2]
    assert last.ledger.deliveries == [1, 2]


def test_answered_requests_are_made_once_however_often_workers_are_given_up():
    waiting = LedgerEntry(1, "tool", "t", "0", None, f"{SETTINGS.outer_tool_call_id}:tool-1", WAITING)
    invocation = started(call(1), recorded=Ledger([waiting]), answered_ids=[1])
    invocation.suspend_now()
    new, effects = again(invocation, call(1), TurnEnded(1))
    assert [one.entry.id for one in effects if isinstance(one, events.PerformRequest)] == [1]
    new.receive(CallerWaitExpired())
    _, effects = again(new, call(1), TurnEnded(1))
    assert not [one for one in effects if isinstance(one, events.PerformRequest)]


# --- output ---


def wrote(text: str) -> OutputItemWritten:
    return OutputItemWritten("text", text)


def test_what_was_written_is_told_once():
    line = ConsoleWritten("log", "l")
    invocation = started(wrote("a"), line, yielded(1))
    assert invocation.receive(TurnEnded(0)) == [SuspendProgram("yield")]
    assert invocation.output_count == 2
    new, effects = again(invocation, wrote("a"), line, yielded(1), TurnEnded(0), wrote("b"))
    assert [one for one in effects if isinstance(one, events.WriteOutputItem | events.WriteConsole)] == [
        events.WriteOutputItem("text", "b")
    ]
    assert new.output_count == 3


def test_more_output_than_there_may_be_is_a_violation():
    assert started(wrote("a" * 100)).ending is None
    assert_violation(started(wrote("a" * 60), wrote("a" * 41)))
    assert_violation(started(wrote("a" * 60), returned('"' + "a" * 60 + '"')))
    assert_violation(started(wrote("a"), settings=SETTINGS))


def test_limits_of_output_and_yields_are_told_as_what_they_are():
    error = error_of(started(threw(limit="max_output_bytes")))
    assert (error.code, error.details) == ("CODE_MODE_OUTPUT_LIMIT", {"limit": "max_output_bytes", "max": 100})
    assert type(error_of(started(threw(limit="max_yields")))) is CodeModeBridgeLimitError
    assert_violation(started(threw(limit="max_output_bytes"), settings=SETTINGS))
    assert_violation(started(threw(limit="max_yields"), settings=SETTINGS))


# --- the end of a program that drains ---


def test_a_program_that_has_returned_has_nothing_in_flight_but_timers_and_yields():
    assert isinstance(started(returned()).ending, events.Completed)
    assert isinstance(started(timer(1), yielded(2), returned(unobserved=(1, 2))).ending, events.Completed)
    assert_violation(started(call(1), returned()))
    assert_violation(started(call(1), TurnEnded(1), returned()))
    assert_violation(started(call(1), call(2), TurnEnded(2), done(1, WAITING), done(2), returned()))


def test_a_failure_that_nobody_looked_at_is_told_beside_the_value():
    invocation = started(call(1), TurnEnded(1), done(1, Rejected("E", "no", "C")), TurnEnded(0))
    assert error_of(invocation).code == "CODE_MODE_DEADLOCK"
    invocation = started(call(1), TurnEnded(1), done(1, Rejected("E", "no", "C")), returned(unobserved=(1,)))
    assert isinstance(invocation.ending, events.Completed)
    assert [one["status"] for one in invocation.ending.abandoned] == ["failed"]


def test_a_worker_yields_no_more_often_than_a_program_may():
    many = [yielded(number) for number in range(1, 1001)]
    invocation = started(*many)
    assert invocation.ending is None
    invocation.receive(yielded(1001))
    assert_violation(invocation)
    assert_violation(started(yielded(1), settings=SETTINGS))


def test_how_far_it_has_come_goes_along():
    invocation = started(wrote("a"), yielded(1), TurnEnded(0))
    new = invocation.answer_yields_and_create_successor(9)
    assert invocation.ledger.progress == ProgramProgress(output_count=1, compute_ms=0, turn_count=1)
    assert new.turn_count == 1


# --- kept ---


def kept(*entries: LedgerEntry, deliveries: tuple[int, ...] = ()) -> Continuation:
    ledger = Ledger(list(entries), list(deliveries), progress=ProgramProgress(3, 40, 5))
    return Continuation.from_ledger("js", "engine", SETTING, ledger)


YIELD = LedgerEntry(1, "yield", "yield_control", '"look"')


@pytest.mark.parametrize("entry", [YIELD, YIELD._replace(outcome=Fulfilled(None), now_ms=9)])
def test_yields_and_how_far_a_program_has_come_are_kept(entry: LedgerEntry):
    continuation = kept(entry, deliveries=(1,) if entry.outcome else ())
    again = Continuation.from_dict(continuation.to_dict())
    assert again == continuation
    assert again.ledger.progress == ProgramProgress(3, 40, 5)


@each_row(
    "change",
    [
        {"name": "other"},
        {"outcome": Fulfilled("1"), "now_ms": 9},
        {"outcome": Rejected("E", "no", "C"), "now_ms": 9},
        {"outcome": WAITING},
        {"is_withdrawn": True},
        {"is_approved": True},
        {"executed_input_json": "1"},
    ],
)
def test_a_yield_that_cannot_be_is_refused(change: dict[str, Any]):
    entry = YIELD._replace(**change)
    settled = (1,) if isinstance(entry.outcome, Fulfilled | Rejected) else ()
    with pytest.raises(CodeModeProtocolError):
        Continuation.from_dict(kept(entry, deliveries=settled).to_dict())


@each_row("progress", [None, [], [1, 2], [1, 2, 3, 4], [1, 2, -3], [1, 2, "3"], [True, 1, 1], {"a": 1}])
def test_progress_that_cannot_be_is_refused(progress: Any):
    with pytest.raises(CodeModeProtocolError):
        Continuation.from_dict({**kept(YIELD).to_dict(), "progress": progress})


def test_more_yields_than_there_can_be_are_refused():
    many = [YIELD._replace(id=number) for number in range(1, 1002)]
    assert Continuation.from_dict(kept(*many[:-1]).to_dict())
    with pytest.raises(CodeModeProtocolError, match="more yields"):
        Continuation.from_dict(kept(*many).to_dict())


def test_a_program_that_was_kept_is_answered_where_it_has_yielded():
    ledger = Ledger([YIELD._replace(outcome=Fulfilled(None), now_ms=3), YIELD._replace(id=2)], [1])
    assert [one.id for one in answer_open_yields(ledger, 7)] == [2]
    assert (ledger.deliveries, ledger[2].now_ms) == ([1, 2], 7)
    assert answer_open_yields(ledger, 8) == []


# --- on the wire ---


@each_row(
    "body",
    [
        {},
        {"kind": "text"},
        {"kind": "image", "text": "a"},
        {"kind": "text", "text": 1},
        {"kind": ["text"], "text": "a"},
        [],
    ],
)
def test_an_item_that_no_kernel_writes_is_refused(body: Any):
    with pytest.raises(CodeModeProtocolError):
        decode_message(b"O" + json.dumps(body).encode())


@pytest.mark.parametrize("kind", ["text", "json"])
def test_an_item_is_read_as_it_is(kind: Any):
    text = "[1" * 5 if kind == "text" else "x" * 100_000  # what is no JSON is refused when it is handed over
    assert decode_message(b"O" + json.dumps({"kind": kind, "text": text}).encode()) == OutputItemWritten(kind, text)
