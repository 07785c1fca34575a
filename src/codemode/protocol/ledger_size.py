"""The size of one invocation's ledger in bytes, and what no longer goes in. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..data.json_values import utf8_length
from ..errors import CodeModeError
from ..profile import HostErrors
from . import endings
from .events import CallSettled
from .ledger import OF_PROGRAMS, Fulfilled, LedgerEntry, Outcome, Rejected, Waiting
from .rejections import rejection
from .sidecar import Sidecar

# So that a program which catches that the ledger is full can go on with calls that need little.
_ROOM_FOR_INPUTS = 64 << 10
# What is kept of an entry beside its texts: its keys, its status, and when it was answered.
_ENTRY_BYTES = 130


class LedgerSize:
    """Counts the UTF-8 bytes of the texts in a ledger against ``maximum``.

    Traces and events keep these very texts, so that they are counted too. A call whose input no longer goes in ends the
    program; of one whose outcome does not, the program gets an error instead, as ``told``, and the tool has run.
    """

    def __init__(self, maximum: int, told: HostErrors, sidecar: Sidecar | None = None) -> None:
        self.maximum = maximum
        self._told = told
        self._sidecar = sidecar
        self._bytes = 0
        self.is_whole = False  # whether it has what was recorded, so that it is not counted again
        self.keeps_room = False  # for what was admitted, until it comes into the ledger
        self._kept_for: dict[int, CallSettled] = {}
        self._kept_bytes = 0
        self._last: CallSettled | None = None  # what was admitted last, and how much its outcome takes
        self._last_bytes = 0
        self._entered, self._entries_bytes = 0, 0

    @property
    def bytes(self) -> int:
        """How many there are."""
        return self._bytes

    def kept_bytes(self, entries: Sequence[LedgerEntry]) -> int:
        """Return about how many a kept ledger has, with what stands in it beside the texts of its calls.

        Entries are looked at once, be it that their program makes them again: what is asked for at each rest is cheap.
        """
        for entry in entries[self._entered :]:
            self._entries_bytes += _ENTRY_BYTES + utf8_length(entry.name) + _bytes(entry.tool_call_id)
        self._entered = max(self._entered, len(entries))
        return self._bytes + self._entries_bytes

    def recorded(self, entry: LedgerEntry) -> None:
        """Count an entry of a recorded ledger, which went in once."""
        if self.is_whole:
            return
        self._bytes += _bytes(entry.input_json) + _bytes(entry.executed_input_json) + _outcome_bytes(entry.outcome)

    def issued(self, entry: LedgerEntry) -> None:
        """Count a new request. Raises `CodeModeBridgeLimitError` when it does not go in."""
        if entry.input_json is not None:
            self._bytes += utf8_length(entry.input_json)
        if self._bytes > self.maximum + _ROOM_FOR_INPUTS:
            raise endings.ledger_full(self.maximum)

    def admitted(self, event: CallSettled, entry: LedgerEntry) -> CallSettled:
        """Return how a call ended as far as ledger and sidecar take it: the error of a full one instead.

        What was admitted is so when it is asked about again.
        """
        if event is self._last or entry.kind in OF_PROGRAMS or self._kept_for.get(event.id) is event:
            return event  # what is a program's own has nothing to keep, and does not fail
        size = _outcome_bytes(event.outcome)
        if self._bytes + self._kept_bytes + size > self.maximum:
            error = endings.ledger_full(self.maximum)
        else:
            error = None if self._sidecar is None else self._refusal(event.outcome, self._sidecar)
        if error is not None:
            rejected = rejection(entry, error, self._told)
            event = CallSettled(event.id, rejected, event.now_ms, error, event.shown_json, event.lasted_us)
            size = _outcome_bytes(event.outcome)
        if self.keeps_room:
            self._kept_for[event.id] = event
            self._kept_bytes += size
        self._last, self._last_bytes = event, size
        return event

    def _refusal(self, outcome: Outcome, sidecar: Sidecar) -> CodeModeError | None:
        if not isinstance(outcome, Fulfilled) or outcome.large is None:
            return None
        to_come = [one.outcome for one in self._kept_for.values()]
        before = [one.large for one in to_come if isinstance(one, Fulfilled) and one.large is not None]
        return sidecar.refusal(outcome.large, before)

    def changed(self, was: LedgerEntry, now: LedgerEntry) -> None:
        """Count an entry anew whose call has begun or ended."""
        if self._kept_for and (kept := self._kept_for.pop(now.id, None)) is not None:
            self._kept_bytes -= _outcome_bytes(kept.outcome)
        # Most calls begin with what the guest issued, and have no outcome before the one they end with.
        if now.executed_input_json is not was.executed_input_json:
            self._bytes += _bytes(now.executed_input_json) - _bytes(was.executed_input_json)
        if was.outcome is not None:
            self._bytes -= _outcome_bytes(was.outcome)
        if (outcome := now.outcome) is not None:
            is_measured = self._last is not None and self._last.outcome is outcome
            self._bytes += self._last_bytes if is_measured else _outcome_bytes(outcome)


def _outcome_bytes(outcome: Outcome | None) -> int:
    if isinstance(outcome, Fulfilled):
        return 0 if outcome.value_json is None else utf8_length(outcome.value_json)
    if isinstance(outcome, Rejected):
        return utf8_length(outcome.message) + _bytes(outcome.fields_json)
    if isinstance(outcome, Waiting):
        return utf8_length(outcome.payload_json) + _bytes(outcome.input_json)
    return 0


def _bytes(text: str | None) -> int:
    return 0 if text is None else utf8_length(text)
