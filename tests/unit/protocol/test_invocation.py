"""The invocation's table, row by row: every event in every state, limits, detached calls, the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invocation_driver import SETTINGS, with_limits
from invocation_settings import limited

from codemode.errors import (
    CodeModeAbortedError,
    CodeModeBridgeLimitError,
    CodeModeDetachedBridgeRequestError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeSyntaxError,
    CodeModeTimeoutError,
    CodeModeToolError,
    CodeModeWorkerError,
)
from codemode.protocol import events, messages
from codemode.protocol.events import CallSettled, Completed, Failed, Finish, Interrupted, Invoke, Send
from codemode.protocol.invocation import Invocation
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry, Rejected, Waiting
from codemode.protocol.messages import CallRequested, ConsoleWritten, ProgramReturned, ProgramThrew, TurnEnded
from codemode.protocol.settings import Settings

WAITING = Waiting("i", "{}", "0", 1)


def call(number: int, kind: Any = "tool", name: str = "t") -> CallRequested:
    return CallRequested(number, kind, name, "0", None)


def returned(value: str | None = "1", *, unobserved: tuple[int, ...] = (), size: int | None = None) -> ProgramReturned:
    return ProgramReturned(value, value is None and size is None, size, unobserved)


def threw(**changes: Any) -> ProgramThrew:
    return replace(ProgramThrew("Error", "oops", "", "", "program", None, None), **changes)


def done(number: int, outcome: Any = None) -> CallSettled:
    return CallSettled(number, outcome or Fulfilled('"v"'), 5)


def machine(*received: Any, settings: Settings = SETTINGS, **more: Any) -> Invocation:
    """Return an invocation that has received these events after its program was started."""
    invocation = Invocation(settings, **more)
    invocation.start("js", analysis_ms=None)
    for event in received:
        invocation.receive(event)
    return invocation


def error_of(invocation: Invocation) -> CodeModeError:
    assert isinstance(invocation.ending, Failed), invocation.ending
    return invocation.ending.error


def assert_violation(invocation: Invocation) -> None:
    assert type(error_of(invocation)) is CodeModeProtocolError


# --- every event in every state ---

STATES: dict[str, Callable[[], Invocation]] = {
    "new": lambda: Invocation(SETTINGS),
    "running": machine,
    "in a turn": lambda: machine(call(1)),
    "call in flight": lambda: machine(call(1), TurnEnded(1)),
    "person asked": lambda: machine(call(1), TurnEnded(1), events.PersonAsked(1)),
    "answered": lambda: machine(call(1), TurnEnded(1), done(1)),
    "two delivered ahead": lambda: machine(call(1), call(2), TurnEnded(2), done(1), done(2)),
    "one waits": lambda: machine(call(1), call(2), TurnEnded(2), done(1, WAITING)),
    "replaying": lambda: machine(recorded=Ledger([LedgerEntry(1, "tool", "t", "0", outcome=Fulfilled("1"))], [1])),
    "completed": lambda: machine(returned()),
    "failed": lambda: machine(events.DeadlinePassed()),
    "interrupted": lambda: machine(call(1), TurnEnded(1), done(1, WAITING)),
}
EVENTS: list[Any] = [
    messages.ProgramAnalysed("js", None, ()),
    messages.ProgramAnalysed(None, None, ({"message": "m", "line": 1, "column": 1},)),
    call(1),
    call(2),
    call(2, "catalog"),
    call(0),
    ConsoleWritten("log", "text"),
    TurnEnded(0),
    TurnEnded(1),
    returned(),
    returned(None),
    returned(unobserved=(1,)),
    returned(unobserved=(9,)),
    returned(None, size=5),
    returned(None, size=2**40),
    threw(),
    threw(request=1),
    threw(request=9),
    threw(limit="max_bridge_requests"),
    threw(limit="timeout_ms"),
    threw(origin="syntax"),
    messages.EngineFailed("MemoryError"),
    events.ProgramAccepted("js"),
    events.ProgramRefused(()),
    done(1),
    done(1, Rejected("N", "m", "C")),
    done(1, WAITING),
    done(9),
    events.ExecutionStarted(1, None, is_approved=True),
    events.ExecutionStarted(9, None, is_approved=True),
    events.PersonAsked(1),
    events.PersonAsked(9),
    events.PersonAnswered(1),
    events.DeadlinePassed(),
    events.AbortRequested(),
    events.WorkerEnded("gone"),
    events.HostFailed(CodeModeError("host")),
]
NEVER_SPOKEN_WHILE_IDLE = (CallRequested, ConsoleWritten, TurnEnded, ProgramReturned, ProgramThrew)


def check_effects(invocation: Invocation, effects: list[events.Effect]) -> None:
    finishes = [effect for effect in effects if isinstance(effect, Finish)]
    assert len(finishes) == (invocation.ending is not None)
    if finishes:
        assert effects[-1] == Finish(invocation.ending)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", STATES)
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
        invoked += [effect.entry.id for effect in effects if isinstance(effect, Invoke)]
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
    assert invocation.start("ts", analysis_ms=50) == [Send(messages.AnalyseProgram("ts", 50))]
    facts = {"calls": []}
    assert invocation.receive(messages.ProgramAnalysed("js", facts, ())) == [events.CheckProgram("js", facts)]
    assert invocation.receive(events.ProgramAccepted("js")) == [Send(messages.RunProgram("js", SETTINGS.for_worker()))]


@pytest.mark.parametrize("refusal", [messages.ProgramAnalysed, events.ProgramRefused])
def test_problems_end_the_invocation_before_anything_runs(refusal: type):
    problems = ({"message": "no", "line": 3, "column": 4}, {"message": "never", "line": 5, "column": 6})
    invocation = Invocation(SETTINGS)
    invocation.start("ts", analysis_ms=50)
    event = events.ProgramRefused(problems) if refusal is events.ProgramRefused else refusal(None, None, problems)
    effects = invocation.receive(event)
    error = error_of(invocation)
    assert effects == [Finish(Failed(error))]
    assert isinstance(error, CodeModeSyntaxError)
    assert (error.details["line"], error.details["column"]) == (3, 4)
    assert error.details["problems"] == list(problems)


def test_a_program_runs_once():
    invocation = machine()
    assert not any(isinstance(effect, Send) for effect in invocation.receive(events.ProgramAccepted("other")))
    assert_violation(invocation)


# --- calls ---


def test_calls_go_out_when_the_turn_ends():
    invocation = machine()
    assert invocation.receive(call(1)) == []
    assert invocation.receive(call(2, name="u")) == []
    effects = invocation.receive(TurnEnded(2))
    assert [effect.entry.name for effect in effects if isinstance(effect, Invoke)] == ["t", "u"]


def test_tool_call_ids_count_tools_alone():
    invocation = machine(call(1), call(2, "catalog"), call(3, "fetch"), call(4))
    ids = [entry.tool_call_id for entry in invocation.ledger.entries]
    assert ids == ["outer:tool-1", None, None, "outer:tool-2"]


def test_the_turn_in_which_the_program_ends_sends_nothing():
    invocation = machine(call(1))
    effects = invocation.receive(returned(unobserved=(1,)))
    assert not any(isinstance(effect, Invoke) for effect in effects)


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
    assert [type(effect) for effect in invocation.receive(done(1))] == [Send]
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


# --- results ---


@pytest.mark.parametrize("value", ["1", "null", '{"a":[]}', None])
def test_the_result_is_passed_on(value: str | None):
    assert machine(returned(value)).ending == Completed(value)


def test_a_result_is_measured_in_utf8_bytes():
    settings = with_limits(max_result_bytes=6)
    assert machine(returned('"éé"'), settings=settings).ending == Completed('"éé"')
    error = error_of(machine(returned('"ééx"'), settings=settings))
    assert isinstance(error, CodeModeSerializationError)
    assert error.details == {"bytes": 7, "max_bytes": 6}


def test_a_result_that_the_worker_withheld_must_be_too_large():
    settings = with_limits(max_result_bytes=6)
    error = error_of(machine(returned(None, size=7), settings=settings))
    assert isinstance(error, CodeModeSerializationError)
    assert error.details == {"bytes": 7, "max_bytes": 6}
    assert_violation(machine(returned(None, size=6), settings=settings))


# --- detached calls ---

REJECTED = CallSettled(1, Rejected("N", "m", "C"), 5, CodeModeToolError("m"))


def statuses(invocation: Invocation) -> list[tuple[str, str]]:
    error = error_of(invocation)
    assert isinstance(error, CodeModeDetachedBridgeRequestError)
    calls = error.details["calls"]
    assert error.details["id"] == calls[0]["id"]
    return [(each["id"], each["status"]) for each in calls]


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        pytest.param([call(1)], [("outer:tool-1", "pending")], id="made in the last turn, observed"),
        pytest.param([call(1), call(2), TurnEnded(2), done(1)], [("outer:tool-2", "pending")], id="sent"),
        pytest.param(
            [call(1), call(2), TurnEnded(2), done(1), done(2)], [("outer:tool-2", "pending")], id="delivered too late"
        ),
        pytest.param(
            [call(1), call(2), TurnEnded(2), done(2, WAITING), done(1)],
            [("outer:tool-2", "waiting")],
            id="waits for a person",
        ),
        pytest.param(
            [call(1), call(2), call(3), TurnEnded(3), done(2, WAITING), done(1)],
            [("outer:tool-2", "waiting"), ("outer:tool-3", "pending")],
            id="both",
        ),
    ],
)
def test_calls_without_an_answer_are_detached(received: list[Any], expected: list[tuple[str, str]]):
    invocation = machine(*received, returned())
    assert statuses(invocation) == expected


def test_calls_that_nobody_looked_at_are_unobserved():
    delivered = (call(1), call(2), TurnEnded(2), done(1), TurnEnded(1), done(2))
    assert statuses(machine(*delivered, returned(unobserved=(2, 1)))) == [
        ("outer:tool-1", "unobserved"),
        ("outer:tool-2", "unobserved"),
    ]
    assert statuses(machine(call(1), returned(unobserved=(1,)))) == [("outer:tool-1", "unobserved")]
    assert machine(*delivered, returned()).ending == Completed("1")


def test_a_call_without_an_answer_comes_before_one_that_nobody_looked_at():
    received = (call(1), call(2), TurnEnded(2), done(1), returned(unobserved=(1, 2)))
    assert statuses(machine(*received)) == [("outer:tool-2", "pending")]


def test_detached_calls_come_before_the_result_whatever_its_size():
    settings = with_limits(max_result_bytes=1)
    assert statuses(machine(call(1), returned("12"), settings=settings)) == [("outer:tool-1", "pending")]


def test_an_error_of_the_guest_comes_before_detached_calls():
    error = error_of(machine(call(1), call(2), TurnEnded(2), done(1), threw(message="mine")))
    assert type(error) is CodeModeError
    assert error.message == "mine"


def test_unobserved_calls_must_exist():
    assert_violation(machine(returned(unobserved=(1,))))
    assert_violation(machine(call(1), returned(unobserved=(0,))))


# --- errors ---


def test_nothing_the_guest_sets_chooses_a_class():
    error = error_of(machine(threw(name="CodeModeTimeoutError", error_code="CODE_MODE_TIMEOUT")))
    assert type(error) is CodeModeError
    assert error.code == "CODE_MODE_ERROR"
    assert (error.details["name"], error.details["code"]) == ("CodeModeTimeoutError", "CODE_MODE_TIMEOUT")


def test_a_position_in_the_program_is_kept():
    error = error_of(machine(threw(stack="at f (program.js:12:34)\nat program.js:1:2")))
    assert (error.details["line"], error.details["column"]) == (12, 34)


def test_an_uncaught_call_error_is_the_hosts_own():
    stack = "at program.js:7:8"
    invocation = machine(call(1), TurnEnded(1), REJECTED, threw(request=1, stack=stack))
    assert error_of(invocation) is REJECTED.error
    assert error_of(invocation).details["line"] == 7


@pytest.mark.parametrize(
    "received",
    [
        pytest.param([threw(request=1)], id="no such request"),
        pytest.param([call(1), threw(request=1)], id="not answered"),
        pytest.param([call(1), TurnEnded(1), done(1), threw(request=1)], id="answered with a value"),
        pytest.param([call(1), TurnEnded(1), REJECTED, threw(request=0)], id="request zero"),
        pytest.param(
            [call(1), call(2), TurnEnded(2), done(2), REJECTED, threw(request=1)], id="an answer it has not taken yet"
        ),
        pytest.param([threw(limit="max_result_bytes")], id="a limit that refuses no call"),
        pytest.param([threw(limit="__class__")], id="no limit"),
    ],
)
def test_an_error_that_the_worker_was_not_given_breaks_the_rules(received: list[Any]):
    assert_violation(machine(*received))


@pytest.mark.parametrize(
    ("limit", "maximum"),
    [("max_bridge_requests", 256), ("max_in_flight_bridge_requests", 32), ("max_catalog_requests", 4)],
)
def test_an_uncaught_refusal_names_its_limit(limit: str, maximum: int):
    error = error_of(machine(threw(limit=limit)))
    assert isinstance(error, CodeModeBridgeLimitError)
    assert error.details == {"limit": limit, "max": maximum}


@pytest.mark.parametrize(("origin", "kind"), [("syntax", CodeModeSyntaxError), ("result", CodeModeSerializationError)])
def test_the_kernel_tells_where_an_error_comes_from(origin: str, kind: type[CodeModeError]):
    assert type(error_of(machine(threw(origin=origin)))) is kind


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (events.DeadlinePassed(), CodeModeTimeoutError),
        (events.AbortRequested(), CodeModeAbortedError),
        (events.WorkerEnded("gone"), CodeModeWorkerError),
        (messages.EngineFailed("MemoryError"), CodeModeError),
        (events.HostFailed(CodeModeToolError("x")), CodeModeToolError),
    ],
)
def test_other_ends(event: Any, kind: type[CodeModeError]):
    for state in STATES.values():
        invocation = state()
        if invocation.ending is None:
            invocation.receive(event)
            assert type(error_of(invocation)) is kind


def test_a_timeout_names_its_limit():
    assert error_of(machine(events.DeadlinePassed())).details == {"timeout_ms": 30_000}


# --- pauses and the clock ---


def test_a_program_that_waits_for_nothing_is_a_deadlock():
    assert error_of(machine(TurnEnded(0))).code == "CODE_MODE_DEADLOCK"


def test_an_invocation_pauses_when_only_people_are_left():
    invocation = machine(call(1), call(2), TurnEnded(2), done(1, WAITING))
    assert invocation.ending is None
    invocation.receive(done(2))
    assert invocation.ending is None
    invocation.receive(TurnEnded(1))
    assert invocation.ending == Interrupted()


def clock(*received: Any, settings: Settings = SETTINGS) -> list[str]:
    """Return what happened to the clock, event by event."""
    invocation = machine(settings=settings)
    names = {events.PauseClock: "pause", events.ResumeClock: "resume"}
    log: list[str] = []
    for event in received:
        changes = [names[type(effect)] for effect in invocation.receive(event) if type(effect) in names]
        log.append(" ".join(changes) or "-")
    return log


ASKED_1, ANSWERED_1, ASKED_2 = events.PersonAsked(1), events.PersonAnswered(1), events.PersonAsked(2)


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        pytest.param([call(1), TurnEnded(1), ASKED_1, ANSWERED_1], "- - pause resume", id="one person"),
        pytest.param([call(1), TurnEnded(1), ASKED_1, done(1)], "- - pause resume", id="settled while asked"),
        pytest.param(
            [call(1), call(2), TurnEnded(2), ASKED_1, ASKED_2, ANSWERED_1], "- - - - pause resume", id="two people"
        ),
        pytest.param(
            [call(1), call(2), TurnEnded(2), ASKED_1, done(2), TurnEnded(1)], "- - - - - pause", id="a call ends"
        ),
        pytest.param(
            [call(1), call(2), TurnEnded(2), ASKED_1, done(2, WAITING)],
            "- - - - pause",
            id="the other waits for longer",
        ),
        pytest.param(
            [call(1), call(2), TurnEnded(2), done(2), ASKED_1, TurnEnded(1)], "- - - - - pause", id="the guest is busy"
        ),
        pytest.param(
            [call(1), TurnEnded(1), ASKED_1, ASKED_1, events.PersonAsked(9)], "- - pause - -", id="asked twice"
        ),
        pytest.param([ASKED_1, call(1), TurnEnded(1)], "- - -", id="asked before the call"),
    ],
)
def test_the_clock_stands_still_only_for_people(received: list[Any], expected: str):
    assert " ".join(clock(*received)) == expected


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        pytest.param([call(1), TurnEnded(1), done(1)], "- pause resume", id="one call"),
        pytest.param([call(1), TurnEnded(1), ASKED_1, ANSWERED_1, done(1)], "- pause - - resume", id="one person"),
        pytest.param(
            [call(1), call(2), TurnEnded(2), done(1), done(2), TurnEnded(1), TurnEnded(0)],
            "- - pause resume - - -",
            id="two calls",
        ),
        pytest.param(
            [call(1), call(2), TurnEnded(2), done(2, WAITING), done(1)], "- - pause - resume", id="one call waits"
        ),
    ],
)
def test_27_the_programs_clock_stands_still_for_every_call(received: list[Any], expected: str):
    assert " ".join(clock(*received, settings=limited(SETTINGS, clock="program"))) == expected


# --- outcomes that are sent ahead ---


def recorded(*deliveries: int) -> Ledger:
    entries = [
        LedgerEntry(number, "tool", "t", "0", None, f"{SETTINGS.outer_tool_call_id}:tool-{number}", Fulfilled('"v"'))
        for number in (1, 2, 3)
    ]
    return Ledger(entries, list(deliveries))


def test_a_replay_sends_every_recorded_outcome_behind_the_program_in_the_recorded_order():
    invocation = Invocation(SETTINGS, recorded=recorded(3, 1))
    sent = [effect.message for effect in invocation.start("js", analysis_ms=None) if isinstance(effect, Send)]
    assert [type(message) for message in sent] == [messages.RunProgram, messages.DeliverValue, messages.DeliverValue]
    assert [message.id for message in sent if isinstance(message, messages.DeliverValue)] == [3, 1]


def test_what_is_sent_ahead_counts_only_when_its_request_has_been_made_again():
    invocation = machine(recorded=recorded(1, 2, 3))
    assert invocation.ledger.deliveries == []
    effects = invocation.receive(call(1)) + invocation.receive(TurnEnded(1))
    assert invocation.ledger.deliveries == [1]
    assert not any(isinstance(effect, Send) for effect in effects)


def test_a_worker_that_did_not_ask_for_what_it_was_sent_ran_another_program():
    invocation = machine(recorded=recorded(1))
    invocation.receive(messages.EngineFailed("kernel-error: unknown request", "request"))
    assert error_of(invocation).details["position"] == 1
    plain = machine()
    plain.receive(messages.EngineFailed("kernel-error: unknown request", "request"))
    assert type(error_of(plain)) is CodeModeError
