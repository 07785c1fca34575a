"""Events of an invocation, short to write, and what its endings are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from invocation_driver import SETTINGS

from codemode.errors import (
    CodeModeError,
    CodeModeProtocolError,
)
from codemode.protocol import events
from codemode.protocol.events import CallSettled, Failed
from codemode.protocol.invocation import Invocation
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry, Waiting
from codemode.protocol.messages import CallRequested, ProgramReturned, ProgramThrew, RequestWithdrawn, TurnEnded
from codemode.protocol.settings import InvocationSettings

WAITING = Waiting("i", "{}", "0", 1)
_TIMED_KINDS = SETTINGS.profile.request_kinds | {"timer"}
TIMED = replace(SETTINGS, profile=replace(SETTINGS.profile, request_kinds=_TIMED_KINDS, unawaited="abandon"))


def call(number: int, kind: Any = "tool", name: str = "t") -> CallRequested:
    return CallRequested(number, kind, name, "0", None)


def returned(value: str | None = "1", *, unobserved: tuple[int, ...] = (), size: int | None = None) -> ProgramReturned:
    return ProgramReturned(value, value is None and size is None, size, unobserved)


def threw(**changes: Any) -> ProgramThrew:
    return replace(ProgramThrew("Error", "oops", "", "", "program", None, None), **changes)


def done(number: int, outcome: Any = None) -> CallSettled:
    return CallSettled(number, outcome or Fulfilled('"v"'), 5)


def machine(*received: Any, settings: InvocationSettings = SETTINGS, **more: Any) -> Invocation:
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
    "timer runs": lambda: machine(call(1, "timer", "setTimeout"), call(2), TurnEnded(1), settings=TIMED),
    "timer in a turn": lambda: machine(call(1, "timer", "setTimeout"), settings=TIMED),
    "timer withdrawn": lambda: machine(
        call(1, "timer", "setTimeout"), RequestWithdrawn(1), call(2), TurnEnded(1), settings=TIMED
    ),
    "completed": lambda: machine(returned()),
    "failed": lambda: machine(events.DeadlinePassed()),
    "interrupted": lambda: machine(call(1), TurnEnded(1), done(1, WAITING)),
}


def recorded(*deliveries: int) -> Ledger:
    entries = [
        LedgerEntry(
            number, "tool", "t", "0", None, f"{SETTINGS.outer_tool_call_id}:tool-{number}", None, Fulfilled('"v"')
        )
        for number in (1, 2, 3)
    ]
    return Ledger(entries, list(deliveries))
