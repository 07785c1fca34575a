"""The turns that a worker owes, and the requests made and deliveries taken in them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CodeModeProtocolError
from .counts import MAX_TIMERS, MAX_YIELDS
from .host_work import UNCOUNTED
from .ledger import Ledger
from .messages import RequestKind
from .settings import Settings


class Turns:
    """Counts turns: one for the start of the program and one for every delivered outcome.

    A turn begins when the one before has ended and there is a delivery for it: from the guest's point of view that call
    is no longer in flight. Requests are counted as the guest counts them: in flight is what was issued and not
    delivered in a turn that has begun, and what asks the catalog, or a timer, never is. The kernel refuses calls beyond
    the limits, so only a worker that is no longer ours can exceed them here.

    ``owed`` is how many turns there are still to come: none before the program runs, and none while the guest is idle;
    ``ended`` how many there were.
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
        self.ended = 0
        self.owed = 0

    @property
    def taken(self) -> Sequence[int]:
        """The requests whose outcome the guest has been handed, and had a turn to see."""
        return self._ledger.deliveries[: self.ended]

    def program_started(self) -> None:
        """Begin the first turn."""
        self.owed = 1

    def require_one(self) -> None:
        """Raise when it is not the worker's turn."""
        if not self.owed:
            raise CodeModeProtocolError("the worker spoke out of turn")

    def issued(self, kind: RequestKind) -> None:
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

    def one_ended(self, in_flight: int) -> None:
        """Count the end of a turn, after which the guest counts so many calls in flight."""
        self.require_one()
        if in_flight != self._in_flight:
            raise CodeModeProtocolError("the worker miscounts the calls in flight")
        self.ended += 1
        self.owed -= 1
        if self.owed:
            self._begin()

    def delivered(self, request_id: int) -> None:
        """Count an outcome that was handed in."""
        self._ledger.deliveries.append(request_id)
        self.handed()

    def handed(self) -> None:
        """Count the turn that a delivery which stands in the ledger brings."""
        self.owed += 1
        if self.owed == 1:
            self._begin()

    def _begin(self) -> None:
        ledger = self._ledger
        if ledger[ledger.deliveries[self.ended - 1]].kind not in UNCOUNTED:
            self._in_flight -= 1
