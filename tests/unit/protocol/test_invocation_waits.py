"""Pauses, the clock that stands still, and outcomes that are sent ahead."""

from __future__ import annotations

from typing import Any

import pytest
from invocation_driver import SETTINGS
from invocation_events import (
    WAITING,
    call,
    done,
    error_of,
    machine,
    recorded,
)
from invocation_settings import limited
from suite import each_row

from codemode.errors import (
    CodeModeError,
)
from codemode.protocol import events, messages
from codemode.protocol.events import Interrupted, SendMessage
from codemode.protocol.invocation import Invocation
from codemode.protocol.messages import TurnEnded
from codemode.protocol.settings import InvocationSettings

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


def clock(*received: Any, settings: InvocationSettings = SETTINGS) -> list[str]:
    """Return what happened to the clock, event by event."""
    invocation = machine(settings=settings)
    names = {events.PauseDeadlineClock: "pause", events.ResumeDeadlineClock: "resume"}
    log: list[str] = []
    for event in received:
        changes = [names[type(effect)] for effect in invocation.receive(event) if type(effect) in names]
        log.append(" ".join(changes) or "-")
    return log


ASKED_1, ANSWERED_1, ASKED_2 = events.PersonAsked(1), events.PersonAnswered(1), events.PersonAsked(2)


@each_row(
    "received, expected",
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
def test_the_programs_clock_stands_still_for_every_call(received: list[Any], expected: str):
    assert " ".join(clock(*received, settings=limited(SETTINGS, timeout_includes_tools=False))) == expected


def test_a_replay_sends_every_recorded_outcome_behind_the_program_in_the_recorded_order():
    invocation = Invocation(SETTINGS, recorded=recorded(3, 1))
    sent = [effect.message for effect in invocation.start("js", analysis_ms=None) if isinstance(effect, SendMessage)]
    assert [type(message) for message in sent] == [messages.RunProgram, messages.DeliverValue, messages.DeliverValue]
    assert [message.id for message in sent if isinstance(message, messages.DeliverValue)] == [3, 1]


def test_what_is_sent_ahead_counts_only_when_its_request_has_been_made_again():
    invocation = machine(recorded=recorded(1, 2, 3))
    assert invocation.ledger.deliveries == []
    effects = invocation.receive(call(1)) + invocation.receive(TurnEnded(1))
    assert invocation.ledger.deliveries == [1]
    assert not any(isinstance(effect, SendMessage) for effect in effects)


def test_a_worker_that_did_not_ask_for_what_it_was_sent_ran_another_program():
    invocation = machine(recorded=recorded(1))
    invocation.receive(messages.EngineFailed("kernel-error: unknown request", "request"))
    assert error_of(invocation).details["position"] == 1
    plain = machine()
    plain.receive(messages.EngineFailed("kernel-error: unknown request", "request"))
    assert type(error_of(plain)) is CodeModeError
