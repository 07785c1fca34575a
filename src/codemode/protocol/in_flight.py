"""Queue requests to perform, and count the turns that a worker owes."""

from __future__ import annotations

from ..errors import CodeModeProtocolError
from .events import Effect, PerformRequest, StartTimers
from .guest_output import MAX_TIMERS, MAX_YIELDS
from .ledger import INTERNAL_KINDS, Ledger, LedgerEntry
from .messages import RequestKind
from .settings import InvocationSettings

UNLIMITED_KINDS = ("catalog", *INTERNAL_KINDS)
"""Kinds of requests that do not count as calls in flight."""

_MAX_DELAY_MS = 2**31 - 1
_MAX_DELAY_DIGITS = 10


class RequestQueue:
    """Running requests, and pending ones that wait for the end of the replay or for a free slot."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.running_calls: set[int] = set()  # running requests that count as calls
        self.awaiting_person: set[int] = set()  # running requests that a person decides about
        self.running_timers: set[int] = set()  # running timers
        self.pending: list[LedgerEntry] = []  # not started yet

    def start_pending_requests(self, max_calls: int) -> list[Effect]:
        """Start pending requests in order, while at most ``max_calls`` calls run.

        Timers start together at the same time. Timers and catalog requests do not count as calls.
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
                effects.append(PerformRequest(entry))
        self.pending = queued
        if timers:
            self.running_timers.update(entry.id for entry in timers)
            effects.append(StartTimers(tuple(timers)))
        return effects

    def record_request_end(self, request_id: int) -> None:
        """Record that a request has ended."""
        self.running.discard(request_id)
        self.running_calls.discard(request_id)
        self.awaiting_person.discard(request_id)
        self.running_timers.discard(request_id)

    def cancel_timer(self, request_id: int) -> bool:
        """Cancel a timer; return whether it ran."""
        self.pending = [entry for entry in self.pending if entry.id != request_id]
        was_running = request_id in self.running
        self.record_request_end(request_id)
        return was_running

    def record_person_asked(self, request_id: int) -> None:
        """Record that a person decides about a request."""
        if request_id in self.running:
            self.awaiting_person.add(request_id)

    def record_person_answered(self, request_id: int) -> None:
        """Record that the person has decided."""
        self.awaiting_person.discard(request_id)


def parse_timer_delay_ms(name: str, input_json: str | None) -> int:
    """Return the delay of a timer. Raises `CodeModeProtocolError` for a request that no guest runtime makes."""
    text = input_json or ""
    if name == "setTimeout" and text.isascii() and text.isdigit() and len(text) <= _MAX_DELAY_DIGITS:
        delay = int(text)
        if delay <= _MAX_DELAY_MS and str(delay) == text:
            return delay
    raise CodeModeProtocolError("a timer has a delay that no program can give")


class TurnCounter:
    """Counts turns: one for the start of the program and one for every delivered outcome.

    A turn begins when the last one has ended and there is a delivery for it: from then on the guest does not count
    that call as in flight. Requests are counted like the guest does: in flight are issued calls that no turn has
    delivered, without catalog requests and timers. The guest runtime refuses calls beyond the limits, so only an
    escaped worker can exceed them here.

    ``owed_count`` is the number of outstanding turns: none before the program runs or while the guest is idle;
    ``ended_count`` is the number of past turns, each of which showed the guest one delivery. Raises
    `CodeModeProtocolError` for a violation.
    """

    def __init__(self, settings: InvocationSettings, ledger: Ledger) -> None:
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

    def check_and_count_turn_end(self, in_flight: int) -> None:
        """Count the end of a turn and compare the guest's number of calls in flight."""
        if in_flight != self._in_flight:
            raise CodeModeProtocolError("the worker miscounts the calls in flight")
        self.ended_count += 1
        self.owed_count -= 1
        if self.owed_count:
            self._begin_turn()

    def record_delivery(self, request_id: int) -> None:
        """Count a delivered outcome."""
        self._ledger.deliveries.append(request_id)
        self.owed_count += 1
        if self.owed_count == 1:
            self._begin_turn()

    def count_recorded_delivery(self) -> None:
        """Count the turn of a delivery that the ledger has already."""
        self.owed_count += 1
        if self.owed_count == 1:
            self._begin_turn()

    def _begin_turn(self) -> None:
        ledger = self._ledger
        if ledger.entries[ledger.deliveries[self.ended_count - 1] - 1].kind not in UNLIMITED_KINDS:
            self._in_flight -= 1
