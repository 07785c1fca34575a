"""The table of an invocation: every event in every state, calls, and limits that only a wrong worker can pass."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invocation_driver import SETTINGS, with_limits
from invocation_events import (
    STATES,
    WAITING,
    assert_violation,
    call,
    done,
    error_of,
    machine,
    returned,
    threw,
)
from suite import each_row

from codemode.errors import (
    CodeModeError,
    CodeModeProtocolError,
    CodeModeSyntaxError,
)
from codemode.protocol import events, messages
from codemode.protocol.events import Failed, FinishInvocation, PerformRequest, SendMessage
from codemode.protocol.invocation import Invocation
from codemode.protocol.ledger import Fulfilled, Rejected
from codemode.protocol.messages import CallRequested, ConsoleWritten, ProgramReturned, ProgramThrew, TurnEnded

EVENTS: list[Any] = [
    messages.ProgramAnalysed("js", None, ()),
    messages.ProgramAnalysed(None, None, ({"message": "m", "line": 1, "column": 1},)),
    call(1),
    call(2),
    call(2, "catalog"),
    call(1, "timer", "setTimeout"),
    call(2, "timer", "setTimeout"),
    call(2, "timer", "other"),
    call(0),
    messages.RequestWithdrawn(1),
    messages.RequestWithdrawn(2),
    messages.RequestWithdrawn(9),
    ConsoleWritten("log", "text"),
    messages.GuestNotification("log", "{}"),
    events.ProgramAccepted("js", compile_only=True),
    events.ProgramRefused(violations=({"kind": "k", "location": {"line": 1, "column": 1}},)),
    TurnEnded(0),
    TurnEnded(1),
    returned(),
    returned(None),
    returned(unobserved=(1,)),
    returned(unobserved=(9,)),
    returned(None, size=5),
    returned(None, size=2**40),
    threw(),
    threw(request_id=1),
    threw(request_id=9),
    threw(limit="max_bridge_requests"),
    threw(limit="timeout_ms"),
    threw(limit="max_timers"),
    threw(error_class="Own", fields_json="{"),
    threw(origin="syntax"),
    messages.EngineFailed("MemoryError"),
    events.ProgramAccepted("js"),
    events.ProgramRefused(()),
    events.ProgramRefused(is_unclear=True),
    done(1),
    done(1, Rejected("N", "m", "C")),
    done(1, WAITING),
    done(9),
    events.ToolStarted(1, None, is_approved=True),
    events.ToolStarted(9, None, is_approved=True),
    events.PersonAsked(1),
    events.PersonAsked(9),
    events.PersonAnswered(1),
    events.DeadlinePassed(),
    events.AbortRequested(),
    events.WorkerEnded("gone"),
    events.HostFailed(CodeModeError("host")),
]


NEVER_SPOKEN_WHILE_IDLE = (
    CallRequested,
    messages.RequestWithdrawn,
    ConsoleWritten,
    messages.GuestNotification,
    TurnEnded,
    ProgramReturned,
    ProgramThrew,
)


def check_effects(invocation: Invocation, effects: list[events.Effect]) -> None:
    finishes = [effect for effect in effects if isinstance(effect, FinishInvocation)]
    assert len(finishes) == (invocation.ending is not None)
    if finishes:
        assert effects[-1] == FinishInvocation(invocation.ending)  # type: ignore[arg-type]


@each_row("state", STATES)
def test_every_event_is_an_answer_or_an_end(state: str):
    for event in EVENTS:
        invocation = STATES[state]()
        if invocation.ending is not None:
            ending = invocation.ending
            assert invocation.receive(event) == []
            assert invocation.ending is ending
        else:
            check_effects(invocation, invocation.receive(event))


@pytest.mark.parametrize("state", ["new", "call in flight", "person asked", "one waits"])
def test_a_worker_that_speaks_out_of_turn_broke_the_rules(state: str):
    for event in EVENTS:
        if isinstance(event, NEVER_SPOKEN_WHILE_IDLE):
            invocation = STATES[state]()
            invocation.receive(event)
            assert_violation(invocation)


@given(st.lists(st.sampled_from(EVENTS), max_size=12), st.sampled_from(sorted(STATES)))
def test_any_events_in_any_order_never_raise(received: list[Any], state: str):
    invocation = STATES[state]()
    ended = invocation.ending is not None
    invoked: list[int] = []
    for event in received:
        effects = invocation.receive(event)
        if ended:
            assert effects == []
            continue
        check_effects(invocation, effects)
        ended = invocation.ending is not None
        invoked += [effect.entry.id for effect in effects if isinstance(effect, PerformRequest)]
    assert len(invoked) == len(set(invoked))


def test_what_a_call_did_after_the_end_is_still_recorded():
    invocation = machine(call(1), call(2), TurnEnded(2), events.DeadlinePassed())
    assert invocation.receive(done(1)) == []
    assert invocation.receive(done(2, WAITING)) == []
    assert invocation.receive(done(1, Rejected("N", "m", "C"))) == []
    assert [entry.outcome for entry in invocation.ledger.entries] == [Fulfilled('"v"'), WAITING]
    assert invocation.ledger.deliveries == [1]


# --- before the program runs ---


def test_source_is_analysed_then_checked_then_run():
    invocation = Invocation(SETTINGS)
    assert invocation.start("ts", analysis_ms=50) == [SendMessage(messages.AnalyseProgram("ts", 50))]
    facts = {"calls": []}
    assert invocation.receive(messages.ProgramAnalysed("js", facts, ())) == [events.CheckProgram("js", facts)]
    assert invocation.receive(events.ProgramAccepted("js")) == [
        SendMessage(messages.RunProgram("js", SETTINGS.to_worker_fields()))
    ]


def test_what_is_known_of_a_source_is_checked_and_the_worker_analyses_nothing():
    invocation = Invocation(SETTINGS)
    known = events.CheckProgram("js", {"calls": []})
    assert invocation.start("ts", analysis_ms=50, known=known) == [events.CheckProgram("js", {"calls": []})]
    assert invocation.receive(events.ProgramAccepted("js")) == [
        SendMessage(messages.RunProgram("js", SETTINGS.to_worker_fields()))
    ]
    invocation = Invocation(SETTINGS)
    invocation.start("ts", analysis_ms=50, known=known)
    invocation.receive(events.ProgramRefused(({"message": "no", "line": 1, "column": 1},)))
    assert isinstance(error_of(invocation), CodeModeSyntaxError)


@pytest.mark.parametrize("known", [None, events.CheckProgram("js", None)])
def test_a_program_is_analysed_once_and_by_whoever_was_asked(known: events.CheckProgram | None):
    """Else each answer of a worker would be checked while the first still is."""
    invocation = Invocation(SETTINGS)
    invocation.start("ts", analysis_ms=50, known=known)
    analysed = messages.ProgramAnalysed("other", {"calls": []}, ())
    if known is None:
        assert invocation.receive(analysed) == [events.CheckProgram("other", {"calls": []})]
    (ended,) = invocation.receive(analysed)
    assert isinstance(ended, FinishInvocation)
    assert isinstance(error_of(invocation), CodeModeProtocolError)


@pytest.mark.parametrize("refusal", [messages.ProgramAnalysed, events.ProgramRefused])
def test_problems_end_the_invocation_before_anything_runs(refusal: type):
    problems = ({"message": "no", "line": 3, "column": 4}, {"message": "never", "line": 5, "column": 6})
    invocation = Invocation(SETTINGS)
    invocation.start("ts", analysis_ms=50)
    event = events.ProgramRefused(problems) if refusal is events.ProgramRefused else refusal(None, None, problems)
    effects = invocation.receive(event)
    error = error_of(invocation)
    assert effects == [FinishInvocation(Failed(error))]
    assert isinstance(error, CodeModeSyntaxError)
    assert (error.details["line"], error.details["column"]) == (3, 4)
    assert error.details["problems"] == list(problems)


def test_a_program_runs_once():
    invocation = machine()
    assert not any(isinstance(effect, SendMessage) for effect in invocation.receive(events.ProgramAccepted("other")))
    assert_violation(invocation)


# --- calls ---


def test_calls_go_out_when_the_turn_ends():
    invocation = machine()
    assert invocation.receive(call(1)) == []
    assert invocation.receive(call(2, name="u")) == []
    effects = invocation.receive(TurnEnded(2))
    assert [effect.entry.name for effect in effects if isinstance(effect, PerformRequest)] == ["t", "u"]


def test_tool_call_ids_count_tools_alone():
    invocation = machine(call(1), call(2, "catalog"), call(3, "fetch"), call(4))
    ids = [entry.tool_call_id for entry in invocation.ledger.entries]
    assert ids == ["outer:tool-1", None, None, "outer:tool-2"]


def test_the_turn_in_which_the_program_ends_sends_nothing():
    invocation = machine(call(1))
    effects = invocation.receive(returned(unobserved=(1,)))
    assert not any(isinstance(effect, PerformRequest) for effect in effects)


@pytest.mark.parametrize("number", [0, 1, 3, 2**52])
def test_request_ids_are_taken_in_order(number: int):
    assert_violation(machine(call(1), call(number)))


@pytest.mark.parametrize("count", [0, 2, 2**52])
def test_a_miscount_of_calls_in_flight_breaks_the_rules(count: int):
    assert_violation(machine(call(1), TurnEnded(count)))


def test_catalog_requests_are_not_in_flight():
    invocation = machine(call(1, "catalog"), TurnEnded(0), done(1), TurnEnded(0))
    assert error_of(invocation).code == "CODE_MODE_DEADLOCK"


def test_a_call_settles_once():
    invocation = machine(call(1), call(2), TurnEnded(2))
    assert [type(effect) for effect in invocation.receive(done(1))] == [SendMessage]
    assert invocation.receive(done(1)) == []
    assert invocation.ledger.deliveries == [1]


def test_deliveries_sent_ahead_are_answered_one_turn_each():
    invocation = machine(call(1), call(2), TurnEnded(2), done(1), done(2), TurnEnded(1))
    assert invocation.ending is None
    invocation.receive(TurnEnded(0))
    assert error_of(invocation).code == "CODE_MODE_DEADLOCK"


# --- limits that only a worker of somebody else's can pass ---


@pytest.mark.parametrize("kind", ["tool", "fetch"])
def test_more_requests_than_allowed_break_the_rules(kind: str):
    settings = with_limits(max_bridge_requests=2)
    assert machine(call(1, kind), call(2, kind), settings=settings).ending is None
    assert_violation(machine(call(1, kind), call(2, kind), call(3, kind), settings=settings))


def test_more_calls_in_flight_than_allowed_break_the_rules():
    settings = with_limits(max_in_flight_bridge_requests=1)
    assert_violation(machine(call(1), call(2), settings=settings))
    assert machine(call(1), TurnEnded(1), done(1), call(2), settings=settings).ending is None
    # A delivery that the worker has not taken yet frees nothing.
    two = with_limits(max_in_flight_bridge_requests=2)
    ahead = (call(1), call(2), TurnEnded(2), done(1), done(2), call(3))
    assert machine(*ahead, settings=two).ending is None
    assert_violation(machine(*ahead, call(4), settings=two))


def test_more_catalog_requests_than_allowed_break_the_rules():
    settings = with_limits(max_catalog_requests=1, max_bridge_requests=1)
    assert machine(call(1, "catalog"), call(2), settings=settings).ending is None
    assert_violation(machine(call(1, "catalog"), call(2, "catalog"), settings=settings))


def test_console_output_beyond_the_limit_breaks_the_rules():
    settings = with_limits(max_console_bytes=1000)
    line = ConsoleWritten("log", "é" * 49 + "x")  # 100 bytes with its line end
    assert machine(*[line] * 12, settings=settings).ending is None
    assert_violation(machine(*[line] * 13, settings=settings))


def test_console_output_is_passed_on():
    assert machine().receive(ConsoleWritten("warn", "w")) == [events.WriteConsole("warn", "w")]
