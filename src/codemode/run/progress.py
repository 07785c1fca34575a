"""How far one call has come, as the invocation is told; with a journal, once that is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..data.records import record
from ..host.clock import Clock
from ..observe.reporter import CallRecord, Reporter
from ..protocol import events
from ..protocol.ledger import LedgerEntry
from .nested_call import NestedCalls

if TYPE_CHECKING:
    from .journaled import InvocationJournal


@record
class Progress:
    """Tells the invocation how far one call has come."""

    feed: Callable[[events.HostEvent], None]
    reporter: Reporter
    id: int
    record: CallRecord
    clock: Clock | None

    def shown(self, input_json: str | None) -> None:
        """See `CallProgress.shown`."""
        self.reporter.call_shown(self.record, input_json)

    def asked(self) -> None:
        """See `CallProgress.asked`."""
        if self.clock is not None:
            self.clock.stop()
        self.feed(events.PersonAsked(self.id))

    def answered(self) -> None:
        """See `CallProgress.answered`."""
        if self.clock is not None:
            self.clock.start()
        self.feed(events.PersonAnswered(self.id))

    def started(self, executed_input_json: str | None, *, is_approved: bool) -> Awaitable[None] | None:
        """See `CallProgress.started`."""
        self.feed(events.ExecutionStarted(self.id, executed_input_json, is_approved))
        return None


class JournaledProgress:
    """The progress of a call that begins only once that is written."""

    __slots__ = ("_calls", "_entry", "_journal", "_progress")

    def __init__(self, progress: Progress, entry: LedgerEntry, calls: NestedCalls, journal: InvocationJournal) -> None:
        self._progress = progress
        self._entry = entry
        self._calls = calls
        self._journal = journal

    def shown(self, input_json: str | None) -> None:
        """See `CallProgress.shown`."""
        self._progress.shown(input_json)

    def asked(self) -> None:
        """See `CallProgress.asked`."""
        self._progress.asked()

    def answered(self) -> None:
        """See `CallProgress.answered`."""
        self._progress.answered()

    def started(self, executed_input_json: str | None, *, is_approved: bool) -> Awaitable[None] | None:
        """See `CallProgress.started`."""
        request_id, text = self._entry.id, executed_input_json
        tool = self._calls.catalog.get(self._entry.name) if text is None and self._entry.kind == "tool" else None
        if tool is not None and tool.input_varies:  # which nobody could find out again
            text = self._calls.kept_inputs.of(request_id)

        def begun() -> None:
            self._progress.started(executed_input_json, is_approved=is_approved)

        return self._journal.begun(request_id, text, is_approved=is_approved, then=begun)
