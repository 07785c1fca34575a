"""The status of a call, by what the ledger has of it, and the words for it. Pure.

There are five ways to stand, and each place where people read of calls has its own words for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypedDict, TypeVar

from ..errors import CALL_TIMEOUT, CallSummary
from .ledger import UNTOLD, Fulfilled, LedgerEntry, Outcome, Waiting
from .messages import RequestKind

if TYPE_CHECKING:
    from ..trace.events import CallStatus

WordT = TypeVar("WordT", bound=str)


class CallWords(NamedTuple, Generic[WordT]):
    """The words of one place. ``late``: the guest was told that it did not answer in time, and it may yet happen."""

    open: WordT
    fulfilled: WordT
    rejected: WordT
    late: WordT
    waiting: WordT


IN_ERRORS: CallWords[Literal["fulfilled", "rejected", "waiting", "unknown"]] = CallWords(
    "unknown", "fulfilled", "rejected", "unknown", "waiting"
)
IN_TRACES: CallWords[CallStatus] = CallWords("aborted", "fulfilled", "rejected", "rejected", "interrupted")
IN_CONTINUATIONS = CallWords("unknown", "fulfilled", "rejected", "rejected", "interrupted")
AT_THE_END = CallWords("pending", "pending", "pending", "pending", "waiting")


class DetachedCall(TypedDict):
    """One call that nobody waited for.

    ``status`` is pending, waiting or unobserved; of one that was abandoned pending, waiting, not sent or failed.
    """

    id: str
    kind: RequestKind
    name: str
    status: str


def call_status(outcome: Outcome | None, words: CallWords[WordT]) -> WordT:
    """Return how a call with this outcome stands, in these words."""
    if isinstance(outcome, Fulfilled):
        return words.fulfilled
    if outcome is None:
        return words.open
    if isinstance(outcome, Waiting):
        return words.waiting
    return words.late if outcome.code == CALL_TIMEOUT else words.rejected


def call_id(entry: LedgerEntry) -> str:
    """Return what names a call to people."""
    return entry.tool_call_id or str(entry.id)


def call_summaries(entries: Iterable[LedgerEntry]) -> tuple[CallSummary, ...]:
    """Return what had happened to calls: `CodeModeError.calls`."""
    return tuple(_summary(entry) for entry in entries if entry.kind not in UNTOLD)


def _summary(entry: LedgerEntry) -> CallSummary:
    begun = entry.is_started or entry.outcome is not None
    status = call_status(entry.outcome, IN_ERRORS)
    return {"id": call_id(entry), "name": entry.name, "status": status, "is_started": begun}


def may_have_run(summary: CallSummary) -> bool:
    """Return False for a question about the catalog, and for a call that was asked for and never begun."""
    is_begun = summary.get("status") != IN_ERRORS.open or summary.get("is_started", True)
    return is_begun and not str(summary.get("name")).startswith("$")
