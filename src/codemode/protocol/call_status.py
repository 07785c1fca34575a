"""The status of calls by the ledger, calls that were never awaited, and words for both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypedDict, TypeVar

from ..errors import (
    CALL_TIMEOUT,
    CallSummary,
    CodeModeDetachedBridgeRequestError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeToolApprovalDeniedError,
)
from ..trace.visible_text import clipped
from .guest_errors import read_fields
from .ledger import OF_PROGRAMS, UNTOLD, Fulfilled, Ledger, LedgerEntry, Outcome, Rejected, Waiting, shown_text
from .messages import RequestKind

if TYPE_CHECKING:
    from ..trace.events import CallStatus


# There are five ways to stand, and each place where people read of calls has its own words for them.

WordT = TypeVar("WordT", bound=str)
MAX_INPUT_CHARACTERS = 300
MAX_RESULT_CHARACTERS = 1000
MAX_SUMMARIES_WITH_TEXTS = 32  # of those that only read, and as many of the others
_DENIED = CodeModeToolApprovalDeniedError.default_code


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


def call_summaries(
    entries: Iterable[LedgerEntry],
    reads_only: Callable[[LedgerEntry], bool] | None = None,
    *,
    hides_inputs: bool = False,
) -> tuple[CallSummary, ...]:
    """Return what had happened to calls: `CodeModeError.calls`.

    With ``reads_only``, which tells whether a call may be made again without harm, they have the texts of a summary.
    ``hides_inputs``: of an input that which may be seen, and not what the program gave.
    """
    told = [entry for entry in entries if entry.kind not in UNTOLD]
    if reads_only is None:
        return tuple(map(_summary, told))
    summaries: list[CallSummary] = []
    left = {True: MAX_SUMMARIES_WITH_TEXTS, False: MAX_SUMMARIES_WITH_TEXTS}
    for entry in told:
        summary = _summary(entry)
        summary["reads_only"] = is_harmless = entry.kind == "catalog" or reads_only(entry)
        if left[is_harmless] and entry.kind != "catalog":
            left[is_harmless] -= 1
            _add_texts(summary, entry, hides_inputs=hides_inputs)
        summaries.append(summary)
    return tuple(summaries)


def _summary(entry: LedgerEntry) -> CallSummary:
    begun = entry.is_started or entry.outcome is not None
    status = call_status(entry.outcome, IN_ERRORS)
    is_denied = isinstance(entry.outcome, Rejected) and entry.outcome.code == _DENIED
    return {
        "id": call_id(entry),
        "name": entry.name,
        "status": "denied" if is_denied else status,
        "is_started": begun,
        "kind": entry.kind,
    }


def _add_texts(summary: CallSummary, entry: LedgerEntry, *, hides_inputs: bool) -> None:
    outcome, given = entry.outcome, shown_text(entry)
    if given is None and not hides_inputs:
        given = entry.input_json
    if given is not None:
        summary["input"] = clipped(given, MAX_INPUT_CHARACTERS)
    if isinstance(outcome, Fulfilled) and outcome.value_json is not None:
        summary["result"] = clipped(outcome.value_json, MAX_RESULT_CHARACTERS)
    elif isinstance(outcome, Rejected):
        fields = {} if outcome.fields_json is None else read_fields(outcome.fields_json)
        summary["error"] = clipped(str(fields.get("message", outcome.message)), MAX_INPUT_CHARACTERS)


def may_have_run(summary: CallSummary) -> bool:
    """Return False for a question about the catalog, and for a call that was asked for and never begun."""
    is_begun = summary.get("status") != IN_ERRORS.open or summary.get("is_started", True)
    is_question = summary.get("kind") == "catalog" or str(summary.get("name")).startswith("$")
    return is_begun and not is_question


def call_summary(entry: LedgerEntry, status: str) -> DetachedCall:
    return {
        "id": call_id(entry),
        "kind": entry.kind,
        "name": entry.name,
        "status": status,
    }


def detached_calls(
    ledger: Ledger, taken: Sequence[int], unsent: set[int], unobserved_ids: tuple[int, ...]
) -> list[DetachedCall]:
    """Return the calls nobody waits for: those without an answer, else those whose answer nobody looked at.

    ``taken`` are those whose answer the guest was handed; ``unsent`` were asked for in the turn in which the program
    ended.
    """
    delivered, unobserved = set(taken), set(unobserved_ids)
    _require_made(ledger, unobserved)
    pending = [
        call_summary(entry, call_status(entry.outcome, AT_THE_END))
        for entry in ledger.entries
        if entry.id not in delivered
        and not (entry.id in unsent and entry.id in unobserved)
        and entry.kind not in OF_PROGRAMS
    ]
    unseen = (ledger[request_id] for request_id in sorted(unobserved))
    return pending or [call_summary(entry, "unobserved") for entry in unseen if entry.kind not in OF_PROGRAMS]


def abandoned_calls(
    ledger: Ledger, taken: Sequence[int], unsent: set[int], unobserved_ids: tuple[int, ...]
) -> tuple[DetachedCall, ...]:
    """Return the calls that a program has left to themselves: those not done, and those whose failure nobody saw."""
    delivered, unobserved = set(taken), set(unobserved_ids)
    _require_made(ledger, unobserved)
    calls: list[DetachedCall] = []
    for entry in ledger.entries:
        if entry.kind in OF_PROGRAMS:
            continue
        if entry.id in unsent:
            calls.append(call_summary(entry, "not sent"))
        elif entry.id not in delivered:
            calls.append(call_summary(entry, call_status(entry.outcome, AT_THE_END)))
        elif entry.id in unobserved and isinstance(entry.outcome, Rejected):
            calls.append(call_summary(entry, "failed"))
    return tuple(calls)


def _require_made(ledger: Ledger, request_ids: set[int]) -> None:
    if not all(request_id in ledger for request_id in request_ids):
        raise CodeModeProtocolError("the worker names a request that was not made")


def detached_error(calls: list[DetachedCall]) -> CodeModeError:
    text = detached_text([f"{call['name']} ({call['status']})" for call in calls])
    return CodeModeDetachedBridgeRequestError(text, details={**calls[0], "calls": calls})


def detached_text(calls: list[str]) -> str:
    """Return what is said of a program that ended without awaiting these calls."""
    names = ", ".join(calls[:5])
    more = f" and {len(calls) - 5} more" if len(calls) > 5 else ""
    return (
        f"the program ended without awaiting every call: {names}{more}. Await each call, for instance with Promise.all"
    )
