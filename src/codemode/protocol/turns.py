"""The turns that a worker owes, and which deliveries it has taken in them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CodeModeProtocolError
from .counts import RequestCounts
from .ledger import Ledger, LedgerEntry
from .messages import RequestKind
from .settings import Settings


class Turns:
    """Counts turns: one for the start of the program and one for every delivered outcome.

    A turn begins when the one before has ended and there is a delivery for it: from the guest's point of view that call
    is no longer in flight. Raises `CodeModeProtocolError` where a worker keeps to none of it.
    """

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._ledger = ledger
        self._counts = RequestCounts(settings)
        self._owed = 0  # none before the program runs, and none while the guest is idle
        self._ended = 0

    @property
    def is_idle(self) -> bool:
        """True while the worker has nothing to do."""
        return not self._owed

    @property
    def taken(self) -> Sequence[int]:
        """The requests whose outcome the guest has been handed, and had a turn to see."""
        return self._ledger.deliveries[: self._ended]

    def program_started(self) -> None:
        """Begin the first turn."""
        self._owed = 1

    def require_one(self) -> None:
        """Raise when it is not the worker's turn."""
        if not self._owed:
            raise CodeModeProtocolError("the worker spoke out of turn")

    def issued(self, kind: RequestKind) -> None:
        """Count a request."""
        self._counts.issued(kind)

    def one_ended(self, in_flight: int) -> None:
        """Count the end of a turn, after which the guest counts so many calls in flight."""
        self.require_one()
        if in_flight != self._counts.in_flight:
            raise CodeModeProtocolError("the worker miscounts the calls in flight")
        self._ended += 1
        self._owed -= 1
        if self._owed:
            self._begin()

    def delivered(self, entry: LedgerEntry) -> None:
        """Count an outcome that was handed in."""
        self._ledger.deliveries.append(entry.id)
        self._owed += 1
        if self._owed == 1:
            self._begin()

    def _begin(self) -> None:
        ledger = self._ledger
        self._counts.delivered(ledger[ledger.deliveries[self._ended - 1]].kind)
