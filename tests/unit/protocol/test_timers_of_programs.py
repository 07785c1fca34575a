"""Timers in the state machine: requests that run on the host, count as no call, and may be withdrawn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from invocation_driver import SETTINGS
from invocation_events import WAITING, assert_violation, call, done, error_of, machine, returned, threw
from invocation_settings import limited
from suite import each_row

from codemode.errors import CodeModeBridgeLimitError, CodeModeDetachedBridgeRequestError, CodeModeProtocolError
from codemode.protocol import events
from codemode.protocol.call_status import summarize_calls
from codemode.protocol.continuation import Continuation
from codemode.protocol.events import CancelTimer, Interrupted, PerformRequest, SendMessage, StartTimers
from codemode.protocol.guest_output import MAX_TIMERS
from codemode.protocol.invocation import Invocation
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry, Rejected, build_recovery_ledger
from codemode.protocol.messages import CallRequested, RequestWithdrawn, TurnEnded

PROFILE = replace(SETTINGS.profile, request_kinds=SETTINGS.profile.request_kinds | {"timer"})
TIMED = replace(SETTINGS, profile=PROFILE)


def timer(number: int, delay: str | None = "5", name: str = "setTimeout") -> CallRequested:
    return CallRequested(number, "timer", name, delay, None)


def fired(number: int, now_ms: int = 9) -> events.CallSettled:
    return events.CallSettled(number, Fulfilled(None), now_ms)


def timed(*received: Any, **more: Any) -> Invocation:
    return machine(*received, settings=more.pop("settings", TIMED), **more)


def last_effects(*received: Any, **more: Any) -> list[Any]:
    *before, last = received
    return timed(*before, **more).receive(last)


def test_the_timers_of_a_turn_are_set_together_when_it_has_ended():
    effects = last_effects(timer(1), call(2), timer(3, "0"), TurnEnded(1))
    invoked = [effect.entry.id for effect in effects if isinstance(effect, PerformRequest)]
    ((first, third),) = [effect.entries for effect in effects if isinstance(effect, StartTimers)]
    assert (invoked, first.id, third.id) == ([2], 1, 3)


def test_a_timer_is_delivered_like_any_other_answer_and_counts_as_no_call():
    invocation = timed(timer(1), TurnEnded(0))
    (effect,) = invocation.receive(fired(1))
    assert effect == SendMessage(invocation.ledger[1].make_delivery_message())
    assert invocation.ledger.deliveries == [1]
    invocation.receive(TurnEnded(0))
    assert error_of(invocation).code == "CODE_MODE_DEADLOCK"
    assert summarize_calls(invocation.ledger.entries) == ()


def test_no_timer_runs_in_a_program_that_has_none():
    assert_violation(machine(timer(1)))
    assert_violation(machine(RequestWithdrawn(1)))


@each_row(
    "delay", [None, "", "-1", "1.5", "01", "2147483648", "9" * 400, "null", '"5"', "\u0665", "1e3", " 5", "+5", "[5]"]
)
def test_a_delay_that_no_program_can_give_is_a_violation(delay: str | None):
    assert_violation(timed(timer(1, delay)))


@pytest.mark.parametrize("delay", ["0", "1", "2147483647"])
def test_any_whole_delay_is_one(delay: str):
    assert timed(timer(1, delay)).ending is None


def test_the_only_timer_there_is_is_setTimeout():
    assert_violation(timed(timer(1, name="setInterval")))


def test_more_timers_than_a_program_may_set_are_a_violation():
    all_of_them = [timer(number) for number in range(1, MAX_TIMERS + 1)]
    invocation = timed(*all_of_them)
    assert invocation.ending is None
    invocation.receive(timer(MAX_TIMERS + 1))
    assert_violation(invocation)


def test_many_timers_leave_all_calls_there_are():
    settings = limited(TIMED, max_bridge_requests=1, max_in_flight_bridge_requests=1, max_catalog_requests=1)
    assert timed(timer(1), timer(2), call(3), timer(4), TurnEnded(1), settings=settings).ending is None


def test_a_limit_of_timers_that_ends_the_program_is_told_as_one():
    error = error_of(timed(threw(limit="max_timers")))
    assert (type(error), error.details) == (CodeModeBridgeLimitError, {"limit": "max_timers", "max": MAX_TIMERS})
    assert_violation(machine(threw(limit="max_timers")))


# --- what a timer holds back ---


def test_a_timer_holds_back_a_pause_and_the_report_of_a_deadlock():
    invocation = timed(call(1), timer(2), TurnEnded(1), done(1, WAITING))
    assert invocation.ending is None
    invocation.receive(fired(2))
    assert invocation.ending is None
    invocation.receive(TurnEnded(1))
    assert invocation.ending == Interrupted()


@pytest.mark.parametrize("kind", [True, False])
def test_the_clock_goes_on_while_a_timer_runs(kind: Any):
    settings = limited(TIMED, timeout_includes_tools=kind)
    invocation = timed(call(1), timer(2), timer(3), settings=settings)
    told = [invocation.receive(event) for event in (TurnEnded(1), events.PersonAsked(1))]
    assert not [one for effects in told for one in effects if isinstance(one, events.PauseDeadlineClock)]
    invocation.receive(fired(2))
    assert invocation.receive(TurnEnded(1)) == []
    invocation.receive(fired(3))
    assert invocation.receive(TurnEnded(1)) == [events.PauseDeadlineClock()]


@pytest.mark.parametrize("kind", [True, False])
def test_the_clock_stands_still_again_when_the_last_timer_is_withdrawn(kind: Any):
    settings = limited(TIMED, timeout_includes_tools=kind)
    invocation = timed(call(1), call(2), timer(3), TurnEnded(2), events.PersonAsked(1), done(2), settings=settings)
    effects = [*invocation.receive(RequestWithdrawn(3)), *invocation.receive(TurnEnded(1))]
    assert effects == [CancelTimer(3), events.PauseDeadlineClock()]


# --- withdrawal ---


def test_a_timer_that_is_withdrawn_in_its_own_turn_is_never_set():
    invocation = timed(call(1), timer(2), RequestWithdrawn(2))
    assert not [effect for effect in invocation.receive(TurnEnded(1)) if isinstance(effect, StartTimers | CancelTimer)]
    assert invocation.ledger[2].is_withdrawn


def test_a_withdrawn_timer_holds_back_nothing_and_is_never_delivered():
    invocation = timed(call(1), call(2), timer(3), TurnEnded(2), done(1, WAITING), done(2))
    assert invocation.receive(RequestWithdrawn(3)) == [CancelTimer(3)]
    invocation.receive(TurnEnded(1))
    assert invocation.ending == Interrupted()
    invocation = timed(call(1), timer(2), TurnEnded(1), done(1), RequestWithdrawn(2))
    assert invocation.receive(fired(2)) == []
    assert invocation.ledger.deliveries == [1]
    invocation.receive(TurnEnded(0))
    assert error_of(invocation).code == "CODE_MODE_DEADLOCK"


def test_a_withdrawal_after_the_answer_was_sent_changes_nothing():
    invocation = timed(call(1), timer(2), TurnEnded(1), done(1), fired(2))
    assert invocation.receive(RequestWithdrawn(2)) == []
    assert (invocation.ledger.deliveries, invocation.ledger[2].is_withdrawn) == ([1, 2], False)
    assert invocation.receive(TurnEnded(0)) == []
    assert invocation.ending is None  # of the delivery the guest owes a turn all the same


@each_row(
    "received",
    [
        (RequestWithdrawn(1),),
        (call(1), RequestWithdrawn(1)),
        (timer(1), RequestWithdrawn(1), RequestWithdrawn(1)),
        (timer(1), RequestWithdrawn(2)),
        (timer(1), RequestWithdrawn(0)),
        (timer(1), TurnEnded(0), RequestWithdrawn(1)),
    ],
)
def test_a_withdrawal_that_cannot_be_is_a_violation(received: tuple[Any, ...]):
    assert_violation(timed(*received))


# --- the end ---


def test_timers_that_have_not_fired_are_dropped_at_the_end_without_a_word():
    for unobserved in ((), (1,), (1, 3)):
        running = timed(timer(1), call(2), TurnEnded(1), done(2), timer(3))
        running.receive(returned(unobserved=unobserved))
        assert isinstance(running.ending, events.Completed)


def test_a_call_beside_timers_is_still_one_that_nobody_awaited():
    error = error_of(timed(timer(1), call(2), returned(unobserved=(1,))))
    assert type(error) is CodeModeDetachedBridgeRequestError
    assert [one["kind"] for one in error.details["calls"]] == ["tool"]


# --- replay ---


def entry(number: int, **changes: Any) -> LedgerEntry:
    return LedgerEntry(number, "timer", "setTimeout", "5")._replace(**changes)


FIRED = {"outcome": Fulfilled(None), "now_ms": 7}


def test_a_timer_that_had_fired_is_answered_from_the_ledger_and_one_that_had_not_waits_anew():
    recorded = Ledger([entry(1, **FIRED), entry(2)], [1])
    effects = last_effects(timer(1), timer(2), TurnEnded(0), recorded=recorded)
    assert effects == [events.ReportReplayedRequest(recorded[1]), StartTimers((recorded[2],))]


def test_a_timer_that_was_withdrawn_is_not_set_again_before_the_program_withdraws_it_again():
    recorded = Ledger([entry(1, is_withdrawn=True), entry(2, **FIRED)], [2])
    invocation = timed(timer(1), timer(2), recorded=recorded)
    assert not [effect for effect in invocation.receive(TurnEnded(0)) if isinstance(effect, StartTimers)]
    assert invocation.receive(RequestWithdrawn(1)) == []
    invocation.receive(TurnEnded(0))
    assert error_of(invocation).code == "CODE_MODE_DEADLOCK"


def test_a_timer_with_another_delay_is_another_program():
    assert_violation(timed(timer(1, "6"), recorded=Ledger([entry(1, **FIRED)], [1])))


def test_a_recovery_asks_nobody_about_a_timer():
    ledger = Ledger([entry(1), entry(2, is_withdrawn=True), entry(3, **FIRED)], [3])
    again = build_recovery_ledger(ledger, "salt", lambda one: one.kind == "timer", lambda _: None, lambda _: None)
    assert (again.entries, again.waiting_entries) == (ledger.entries, [])


def test_a_full_ledger_lets_timers_fire():
    settings = limited(TIMED, max_ledger_bytes=1)
    invocation = timed(timer(1, "1234567890"), TurnEnded(0), settings=settings)
    assert invocation.admit_or_replace_outcome(fired(1)) == fired(1)


# --- continuations ---


def kept(*entries: LedgerEntry, deliveries: list[int]) -> dict[str, Any]:
    return Continuation.from_ledger("1", "engine", TIMED, Ledger(list(entries), deliveries)).to_dict()


def test_a_continuation_keeps_timers_as_they_stand():
    plain = kept(entry(1, **FIRED), entry(2, is_withdrawn=True), entry(3), deliveries=[1])
    again = Continuation.from_dict(plain).ledger.entries
    assert again == [entry(1, **FIRED), entry(2, is_withdrawn=True), entry(3)]


REJECTED = Rejected("E", "m", "C")


@each_row(
    "entries, deliveries",
    [
        ([entry(1, **FIRED, is_withdrawn=True)], [1]),
        ([entry(1, outcome=Fulfilled("1"), now_ms=7)], [1]),
        ([entry(1, outcome=Fulfilled(None))], [1]),
        ([entry(1, outcome=REJECTED, now_ms=7)], [1]),
        ([entry(1, outcome=WAITING)], []),
        ([entry(1, input_json="-5")], []),
        ([entry(1, input_json=None)], []),
        ([entry(1, name="setInterval")], []),
        ([entry(1, tool_call_id="outer:tool-1")], []),
        ([entry(1, executed_input_json="5")], []),
        ([entry(1, is_approved=True)], []),
        ([entry(1, now_ms=7)], []),
        ([entry(1, kind="catalog", is_withdrawn=True)], []),
        ([entry(number) for number in range(1, MAX_TIMERS + 2)], []),
    ],
)
def test_a_continuation_with_a_timer_that_cannot_be_is_refused(entries: list[LedgerEntry], deliveries: list[int]):
    with pytest.raises(CodeModeProtocolError):
        Continuation.from_dict(kept(*entries, deliveries=deliveries))
