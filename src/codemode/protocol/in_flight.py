"""Requests that run or wait, and the turns that a worker owes."""

from __future__ import annotations

from ..errors import CodeModeProtocolError
from .events import Effect, Invoke, SetTimers
from .guest_output import MAX_TIMERS, MAX_YIELDS
from .ledger import INTERNAL_KINDS, Ledger, LedgerEntry
from .messages import RequestKind
from .settings import Settings

# Pure. Knows nothing of what the guest does.

UNLIMITED_KINDS = ("catalog", *INTERNAL_KINDS)
"""Kinds of requests that count as no calls in flight."""

_MAX_DELAY_MS = 2**31 - 1
_MAX_DELAY_DIGITS = 10


class RequestQueue:
    """Which requests run, and which are held: until the replay is done, or until fewer calls run."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.running_calls: set[int] = set()  # those of them that count as calls
        self.awaiting_person: set[int] = set()  # those of them that a person decides about
        self.running_timers: set[int] = set()  # those of them that are timers
        self.pending: list[LedgerEntry] = []  # those that are to be made

    def start_pending(self, max_calls: int) -> list[Effect]:
        """Start what is held, in order, while at most ``max_calls`` calls run.

        Timers start together, for they count from one moment. They and catalog requests count as no calls.
        """
        effects: list[Effect] = []
        timers: list[LedgerEntry] = []
        queued: list[LedgerEntry] = []
        for entry in self.pending:
            if entry.kind not in UNLIMITED_KINDS:
                if len(self.running_calls) >= max_calls:
                    queued.append(entry)
                    continue
                self.running_calls.add(entry.id)
            self.running.add(entry.id)
            if entry.kind == "timer":
                timers.append(entry)
            else:
                effects.append(Invoke(entry))
        self.pending = queued
        if timers:
            self.running_timers.update(entry.id for entry in timers)
            effects.append(SetTimers(tuple(timers)))
        return effects

    def finish(self, request_id: int) -> None:
        """Note that a request no longer runs."""
        self.running.discard(request_id)
        self.running_calls.discard(request_id)
        self.awaiting_person.discard(request_id)
        self.running_timers.discard(request_id)

    def cancel_timer(self, request_id: int) -> bool:
        """Let go of a timer; return whether it ran."""
        self.pending = [entry for entry in self.pending if entry.id != request_id]
        was_running = request_id in self.running
        self.finish(request_id)
        return was_running

    def person_asked(self, request_id: int) -> None:
        """Note that a person decides about a request."""
        if request_id in self.running:
            self.awaiting_person.add(request_id)

    def person_answered(self, request_id: int) -> None:
        """Note that the person has decided."""
        self.awaiting_person.discard(request_id)


def read_timer_delay_ms(name: str, input_json: str | None) -> int:
    """Return how long a timer takes. Raises `CodeModeProtocolError` for a request that no kernel makes."""
    text = input_json or ""
    if name == "setTimeout" and text.isascii() and text.isdigit() and len(text) <= _MAX_DELAY_DIGITS:
        delay = int(text)
        if delay <= _MAX_DELAY_MS and str(delay) == text:
            return delay
    raise CodeModeProtocolError("a timer has a delay that no program can give")


class TurnCounter:
    """Counts turns: one for the start of the program and one for every delivered outcome.

    A turn begins when the one before has ended and there is a delivery for it: from the guest's point of view that call
    is no longer in flight. Requests are counted as the guest counts them: in flight is what was issued and not
    delivered in a turn that has begun, and what asks the catalog, or a timer, never is. The kernel refuses calls beyond
    the limits, so only a worker that is no longer ours can exceed them here.

    ``owed_count`` is how many turns there are still to come: none before the program runs, and none while the guest is
    idle;
    ``ended_count`` how many there were: of so many deliveries the guest had a turn to see the outcome.
    Raises `CodeModeProtocolError` where a worker keeps to none of it.
    """

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._ledger = ledger
        self._limits = settings.limits
        self._in_flight = 0
        self._bridge_requests = 0
        self._catalog_requests = 0
        self._timers = 0
        self._yields = 0
        self.ended_count = 0
        self.owed_count = 0

    def count_request(self, kind: RequestKind) -> None:
        """Count a request. Raises beyond the limits."""
        if kind == "catalog":
            self._catalog_requests += 1
        elif kind == "timer":
            self._timers += 1
        elif kind == "yield":
            self._yields += 1
        else:
            self._bridge_requests += 1
            self._in_flight += 1
        limits = self._limits
        if (
            self._catalog_requests > limits.max_catalog_requests
            or self._timers > MAX_TIMERS
            or self._yields > MAX_YIELDS
            or self._bridge_requests > limits.max_bridge_requests
            or (limits.in_flight_limit == "fail" and self._in_flight > limits.max_in_flight_bridge_requests)
        ):
            raise CodeModeProtocolError("the worker sent more requests than the limits allow")

    def end_turn(self, in_flight: int) -> None:
        """Count the end of a turn, after which the guest counts so many calls in flight."""
        if in_flight != self._in_flight:
            raise CodeModeProtocolError("the worker miscounts the calls in flight")
        self.ended_count += 1
        self.owed_count -= 1
        if self.owed_count:
            self._begin_turn()

    def add_delivery(self, request_id: int) -> None:
        """Count an outcome that was handed in."""
        self._ledger.deliveries.append(request_id)
        self.owed_count += 1
        if self.owed_count == 1:
            self._begin_turn()

    def add_turn(self) -> None:
        """Count the turn that a delivery which stands in the ledger brings."""
        self.owed_count += 1
        if self.owed_count == 1:
            self._begin_turn()

    def _begin_turn(self) -> None:
        ledger = self._ledger
        if ledger.entries[ledger.deliveries[self.ended_count - 1] - 1].kind not in UNLIMITED_KINDS:
            self._in_flight -= 1
