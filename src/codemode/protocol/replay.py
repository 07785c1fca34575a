"""The recorded part of an invocation that is run again. Pure: compares what comes with what was, in both orders."""

from __future__ import annotations

from ..data.large_strings import cut_large_strings, may_have_places
from ..profile import SidecarRules
from . import ending_errors
from .events import CallSettled, ExecutionStarted
from .ledger import Fulfilled, Ledger, LedgerEntry, Waiting
from .messages import CallRequested
from .references import Sidecar


class Replay:
    """A recorded ledger beside the one that grows again. Raises `CodeModeProtocolError` where the two differ.

    With ``hides_inputs`` its errors quote none. ``is_empty``: nothing was recorded.
    """

    def __init__(self, recorded: Ledger | None, *, hides_inputs: bool = False) -> None:
        self._hides_inputs = hides_inputs
        self.has_record = recorded is not None
        self._recorded = recorded if recorded is not None else Ledger()
        self.is_empty = not self._recorded.entries

    def entry_for(self, request: CallRequested, ledger: Ledger) -> LedgerEntry | None:
        """Return the recorded entry of a request, None for one that is new."""
        if self.is_empty:
            return None
        if request.id not in self._recorded:
            if self.is_unfinished(ledger):
                raise ending_errors.diverged(request.id, f"{self._text(request)} was not made in the recorded run")
            return None
        recorded = self._recorded[request.id]
        if not recorded.same_request(request):
            raise ending_errors.diverged(request.id, f"recorded {self._text(recorded)}, now {self._text(request)}")
        return recorded

    def _text(self, request: LedgerEntry | CallRequested) -> str:
        return f"{request.kind} {request.name}" if self._hides_inputs else ending_errors.request_text(request)

    def is_unfinished(self, ledger: Ledger) -> bool:
        """True while recorded outcomes are still to be handed in."""
        return len(ledger.deliveries) < len(self._recorded.deliveries)

    def next_delivery(self, ledger: Ledger) -> LedgerEntry | None:
        """Return the entry whose outcome comes next, if its request has been made again."""
        if not self.is_unfinished(ledger):
            return None
        request_id = self._recorded.deliveries[len(ledger.deliveries)]
        has_been_made = request_id in ledger
        return ledger[request_id] if has_been_made else None

    def outcomes(self) -> list[LedgerEntry]:
        """Return the entries whose outcomes are handed in again, in that order."""
        return [self._recorded[request_id] for request_id in self._recorded.deliveries]

    @property
    def recorded(self) -> Ledger:
        """What was recorded, which is empty where nothing was."""
        return self._recorded

    def __getitem__(self, request_id: int) -> LedgerEntry:
        return self._recorded[request_id]

    def settle(self, event: CallSettled) -> LedgerEntry:
        """Record how a request has ended that runs on meanwhile; it is delivered behind the rest. Returns its entry."""
        recorded = self._recorded
        settled = recorded.settle(event.id, event.outcome, event.now_ms, event.shown_json, event.lasted_us)
        entry = recorded.handed(settled)
        if not isinstance(event.outcome, Waiting):
            recorded.deliveries.append(event.id)
        return entry

    def start(self, event: ExecutionStarted) -> LedgerEntry:
        """Record that the tool of such a request begins, and return its entry."""
        return self._recorded.start(event.id, event.executed_input_json, is_approved=event.is_approved)

    def require_seen(self, ledger: Ledger) -> None:
        """A program that ends or comes to rest before all of its record was seen is another program."""
        if self.is_empty:
            return
        if len(ledger.entries) < len(self._recorded.entries) or self.is_unfinished(ledger):
            position = min(len(ledger.entries) + 1, len(self._recorded.entries))
            raise ending_errors.diverged(position, "the program did not get as far as in the recorded run")

    def complete(self, ledger: Ledger) -> None:
        """Add what the replay had not come to yet: a run that is cut short must not forget which calls are done."""
        ledger.entries += self._recorded.entries[len(ledger.entries) :]
        ledger.deliveries += self._recorded.deliveries[len(ledger.deliveries) :]
        ledger.notices = max(ledger.notices, self._recorded.notices)
        ledger.progress = max(ledger.progress, self._recorded.progress)


def sidecar_of(rules: SidecarRules, recorded: Ledger | None) -> Sidecar:
    """Return where an invocation's large strings go, with those that were recorded."""
    return Sidecar(rules) if recorded is None or recorded.sidecar is None else recorded.sidecar


def with_references(recorded: Ledger, rules: SidecarRules, sidecar: Sidecar | None = None) -> Ledger:
    """Return a recorded ledger with the large strings that its program was handed, which follow from its texts.

    They go into an empty ``sidecar`` where there is one.
    """
    sidecar = Sidecar(rules) if sidecar is None else sidecar

    def again(entry: LedgerEntry) -> LedgerEntry:
        if entry.kind != "tool":
            return entry
        outcome, text = entry.outcome, entry.input_json
        if isinstance(outcome, Fulfilled) and outcome.value_json is not None:
            outcome = Fulfilled(outcome.value_json, cut_large_strings(outcome.value_json, rules.threshold_bytes))
        return entry._replace(outcome=outcome, sidecar=sidecar if may_have_places(text) else None)

    entries, deliveries = [again(entry) for entry in recorded.entries], list(recorded.deliveries)
    ledger = Ledger(entries, deliveries, recorded.notices, sidecar, recorded.progress, recorded.contents)
    for request_id in ledger.deliveries:
        ledger.handed(ledger[request_id])
    return ledger
