"""Derive the status of calls from the ledger, and find calls that were not awaited."""

from __future__ import annotations

import re
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
from ..trace.visible_text import clip_text
from .guest_errors import read_error_fields
from .ledger import (
    INTERNAL_KINDS,
    UNREPORTED_KINDS,
    Fulfilled,
    Ledger,
    LedgerEntry,
    Outcome,
    Rejected,
    Waiting,
    get_displayed_input_json,
)
from .messages import RequestKind

if TYPE_CHECKING:
    from ..trace.events import CallStatus


# A call has one of five statuses; each place where people read of calls names them differently.

StatusT = TypeVar("StatusT", bound=str)
MAX_INPUT_CHARACTERS = 300
MAX_RESULT_CHARACTERS = 1000
MAX_SUMMARIES_WITH_TEXTS = 32  # of read-only calls, and as many of others
_DENIED = CodeModeToolApprovalDeniedError.default_code


class CallStatusNames(NamedTuple, Generic[StatusT]):
    """The status names of one place. ``late``: the guest got a timeout, and the call may still have its effect."""

    open: StatusT
    fulfilled: StatusT
    rejected: StatusT
    late: StatusT
    waiting: StatusT


ERROR_STATUSES: CallStatusNames[Literal["fulfilled", "rejected", "waiting", "unknown"]] = CallStatusNames(
    "unknown", "fulfilled", "rejected", "unknown", "waiting"
)
TRACE_STATUSES: CallStatusNames[CallStatus] = CallStatusNames(
    "aborted", "fulfilled", "rejected", "rejected", "interrupted"
)
CONTINUATION_STATUSES = CallStatusNames("unknown", "fulfilled", "rejected", "rejected", "interrupted")
DETACHED_STATUSES = CallStatusNames("pending", "pending", "pending", "pending", "waiting")


class DetachedCall(TypedDict):
    """One call that the program did not await.

    ``status`` is pending, waiting or unobserved; of an abandoned call pending, waiting, not sent or failed.
    """

    id: str
    kind: RequestKind
    name: str
    status: str


def get_call_status(outcome: Outcome | None, names: CallStatusNames[StatusT]) -> StatusT:
    """Return the status of a call with this outcome, by these names."""
    if isinstance(outcome, Fulfilled):
        return names.fulfilled
    if outcome is None:
        return names.open
    if isinstance(outcome, Waiting):
        return names.waiting
    return names.late if outcome.code == CALL_TIMEOUT else names.rejected


def get_displayed_call_id(entry: LedgerEntry) -> str:
    """Return the id of a call for people."""
    return entry.tool_call_id or str(entry.id)


def summarize_calls(
    entries: Iterable[LedgerEntry],
    reads_only: Callable[[LedgerEntry], bool] | None = None,
    *,
    hides_inputs: bool = False,
) -> tuple[CallSummary, ...]:
    """Return the summaries of calls for `CodeModeError.calls`.

    With ``reads_only``, which returns True for calls that are safe to repeat, they include texts. ``hides_inputs``:
    include only displayed inputs, not issued ones.
    """
    reported_entries = [entry for entry in entries if entry.kind not in UNREPORTED_KINDS]
    if reads_only is None:
        return tuple(map(_summarize_call, reported_entries))
    summaries: list[CallSummary] = []
    remaining = {True: MAX_SUMMARIES_WITH_TEXTS, False: MAX_SUMMARIES_WITH_TEXTS}
    for entry in reported_entries:
        summary = _summarize_call(entry)
        summary["reads_only"] = is_harmless = entry.kind == "catalog" or reads_only(entry)
        if remaining[is_harmless] and entry.kind != "catalog":
            remaining[is_harmless] -= 1
            _add_summary_texts(summary, entry, hides_inputs=hides_inputs)
        summaries.append(summary)
    return tuple(summaries)


def _summarize_call(entry: LedgerEntry) -> CallSummary:
    is_started = entry.is_started or entry.outcome is not None
    status = get_call_status(entry.outcome, ERROR_STATUSES)
    is_denied = isinstance(entry.outcome, Rejected) and entry.outcome.code == _DENIED
    return {
        "id": get_displayed_call_id(entry),
        "name": entry.name,
        "status": "denied" if is_denied else status,
        "is_started": is_started,
        "kind": entry.kind,
    }


def _add_summary_texts(summary: CallSummary, entry: LedgerEntry, *, hides_inputs: bool) -> None:
    outcome, input_json = entry.outcome, get_displayed_input_json(entry)
    if input_json is None and not hides_inputs:
        input_json = entry.input_json
    if input_json is not None:
        summary["input"] = clip_text(input_json, MAX_INPUT_CHARACTERS)
    if isinstance(outcome, Fulfilled) and outcome.value_json is not None:
        summary["result"] = clip_text(outcome.value_json, MAX_RESULT_CHARACTERS)
    elif isinstance(outcome, Rejected):
        fields = {} if outcome.fields_json is None else read_error_fields(outcome.fields_json)
        summary["error"] = clip_text(str(fields.get("message", outcome.message)), MAX_INPUT_CHARACTERS)


def is_noncatalog_call_that_may_have_run(summary: CallSummary) -> bool:
    """Return False for a catalog request and for a call that never started."""
    is_begun = summary.get("status") != ERROR_STATUSES.open or summary.get("is_started", True)
    is_question = summary.get("kind") == "catalog" or str(summary.get("name")).startswith("$")
    return is_begun and not is_question


def describe_detached_call(entry: LedgerEntry, status: str) -> DetachedCall:
    return {
        "id": get_displayed_call_id(entry),
        "kind": entry.kind,
        "name": entry.name,
        "status": status,
    }


def find_unanswered_or_unobserved_calls(
    ledger: Ledger, delivered_ids: Sequence[int], unsent_ids: set[int], unobserved_ids: tuple[int, ...]
) -> list[DetachedCall]:
    """Return calls without an answer, else those whose answer the program did not observe.

    ``delivered_ids`` have a delivered answer; ``unsent_ids`` were issued in the turn in which the program ended.
    """
    delivered, unobserved = set(delivered_ids), set(unobserved_ids)
    _require_issued_requests(ledger, unobserved)
    pending = [
        describe_detached_call(entry, get_call_status(entry.outcome, DETACHED_STATUSES))
        for entry in ledger.entries
        if entry.id not in delivered
        and not (entry.id in unsent_ids and entry.id in unobserved)
        and entry.kind not in INTERNAL_KINDS
    ]
    unobserved_entries = (ledger[request_id] for request_id in sorted(unobserved))
    return pending or [
        describe_detached_call(entry, "unobserved") for entry in unobserved_entries if entry.kind not in INTERNAL_KINDS
    ]


# The engine does not report unhandled rejections. Only a program without any of these words surely handles none.
_REJECTION_HANDLER = re.compile(
    r"\b(?:catch|finally|allSettled|throwOnError)\b|\.\s*(?:then|any|race)\b|\[\s*['\"`](?:then|any|race)['\"`]"
)


def may_handle_rejections(js: str) -> bool:
    """Return False for a program that surely handles no rejection."""
    return _REJECTION_HANDLER.search(js) is not None


def find_abandoned_calls(
    ledger: Ledger,
    delivered_ids: Sequence[int],
    unsent_ids: set[int],
    unobserved_ids: tuple[int, ...],
    *,
    may_handle_errors: bool,
) -> tuple[DetachedCall, ...]:
    """Return calls that the program abandoned: unfinished ones, and failed ones whose error nothing handled."""
    delivered, unobserved = set(delivered_ids), set(unobserved_ids)
    _require_issued_requests(ledger, unobserved)
    calls: list[DetachedCall] = []
    for entry in ledger.entries:
        if entry.kind in INTERNAL_KINDS:
            continue
        if entry.id in unsent_ids:
            calls.append(describe_detached_call(entry, "not sent"))
        elif entry.id not in delivered:
            calls.append(describe_detached_call(entry, get_call_status(entry.outcome, DETACHED_STATUSES)))
        elif isinstance(entry.outcome, Rejected):
            is_observed = entry.id not in unobserved
            if not (is_observed and (may_handle_errors or entry.kind == "catalog")):
                calls.append(describe_detached_call(entry, "failed"))
    return tuple(calls)


def _require_issued_requests(ledger: Ledger, request_ids: set[int]) -> None:
    if not all(request_id in ledger for request_id in request_ids):
        raise CodeModeProtocolError("the worker names a request that was not made")


NOT_AWAITED = "the program ended without awaiting every call"
AWAIT_HINT = "Await each call, for instance with Promise.all"


def make_detached_call_error(calls: list[DetachedCall]) -> CodeModeError:
    text = format_detached_calls_message([f"{call['name']} ({call['status']})" for call in calls])
    return CodeModeDetachedBridgeRequestError(text, details={**calls[0], "calls": calls})


def format_detached_calls_message(calls: list[str]) -> str:
    """Return the message about calls that a program did not await."""
    names = ", ".join(calls[:5])
    others = f" and {len(calls) - 5} more" if len(calls) > 5 else ""
    return f"{NOT_AWAITED}: {names}{others}. {AWAIT_HINT}"
