"""The calls that a program has left to themselves: which they are, and how that is worded. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CodeModeDetachedBridgeRequestError, CodeModeError, CodeModeProtocolError
from .call_status import AT_THE_END, DetachedCall, call_id, call_status
from .ledger import OF_PROGRAMS, Ledger, LedgerEntry, Rejected


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
    if not ledger.entries and not unobserved_ids:
        return []  # as a program that has called nothing
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
    if not ledger.entries and not unobserved_ids:
        return ()
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
