"""The host's work for an invocation: requests that run, timers among them, those to come, what a person decides.

Pure. Knows nothing of what the guest does.
"""

from __future__ import annotations

from ..errors import CodeModeProtocolError
from .events import Effect, Invoke, SetTimers
from .ledger import OF_PROGRAMS, LedgerEntry

UNCOUNTED = ("catalog", *OF_PROGRAMS)
"""Kinds of requests that count as no calls in flight."""

_MAX_DELAY_MS = 2**31 - 1
_MAX_DELAY_DIGITS = 10


class HostWork:
    """Which requests run, and which are held: until the replay is done, or until fewer calls run."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.calls: set[int] = set()  # those of them that count as calls
        self.asked: set[int] = set()  # those of them that a person decides about
        self.timers: set[int] = set()  # those of them that are timers
        self.held: list[LedgerEntry] = []  # those that are to be made

    def begin(self, max_calls: int) -> list[Effect]:
        """Start what is held, in order, while at most ``max_calls`` calls run.

        Timers start together, for they count from one moment. They and catalog requests count as no calls.
        """
        effects: list[Effect] = []
        timers: list[LedgerEntry] = []
        queued: list[LedgerEntry] = []
        for entry in self.held:
            if entry.kind not in UNCOUNTED:
                if len(self.calls) >= max_calls:
                    queued.append(entry)
                    continue
                self.calls.add(entry.id)
            self.running.add(entry.id)
            if entry.kind == "timer":
                timers.append(entry)
            else:
                effects.append(Invoke(entry))
        self.held = queued
        if timers:
            self.timers.update(entry.id for entry in timers)
            effects.append(SetTimers(tuple(timers)))
        return effects

    def ended(self, request_id: int) -> None:
        """Note that a request no longer runs."""
        self.running.discard(request_id)
        self.calls.discard(request_id)
        self.asked.discard(request_id)
        self.timers.discard(request_id)

    def withdraw(self, request_id: int) -> bool:
        """Let go of a timer; return whether it ran."""
        self.held = [entry for entry in self.held if entry.id != request_id]
        was_running = request_id in self.running
        self.ended(request_id)
        return was_running

    def is_not_the_programs(self, clock: str) -> bool:
        """Whether an idle program waits for others alone: timers are its own, all else by the wall's clock."""
        return not self.timers and (clock == "program" or self.running == self.asked)

    def person_asked(self, request_id: int) -> None:
        """Note that a person decides about a request."""
        if request_id in self.running:
            self.asked.add(request_id)

    def person_answered(self, request_id: int) -> None:
        """Note that the person has decided."""
        self.asked.discard(request_id)


def delay_ms(name: str, input_json: str | None) -> int:
    """Return how long a timer takes. Raises `CodeModeProtocolError` for a request that no kernel makes."""
    text = input_json or ""
    if name == "setTimeout" and text.isascii() and text.isdigit() and len(text) <= _MAX_DELAY_DIGITS:
        delay = int(text)
        if delay <= _MAX_DELAY_MS and str(delay) == text:
            return delay
    raise CodeModeProtocolError("a timer has a delay that no program can give")
