"""The states of records and of their requests, and what leads from one to another. Pure: knows no database.

A record is one invocation that has paused, or that rests: it has an owner then, and waits for no person. It ends once;
what has ended never changes again.
"""

from __future__ import annotations

from typing import Literal, get_args

from .errors import RecordExpired, RecordLost, RequestSettled, StoreError

RecordState = Literal["resting", "pending", "resuming", "completed", "failed", "lost", "expired", "withdrawn"]
RequestState = Literal["waiting", "decided", "applied", "superseded"]
RecordEvent = Literal[
    "decide", "claim", "pause", "rest", "release", "complete", "fail", "lose", "expire", "withdraw", "close",
    "run again",
]  # fmt: skip
RequestEvent = Literal["decide", "apply", "refuse", "supersede", "ask"]

RECORD_STATES: tuple[RecordState, ...] = get_args(RecordState)
ENDED: frozenset[RecordState] = frozenset({"completed", "failed", "expired", "withdrawn"})
"""A lost record has not ended: somebody has to say so."""
OWNED: frozenset[RecordState] = frozenset({"resuming", "resting"})
"""Somebody goes on with these, or has died over it."""

RECORDS: dict[tuple[RecordState, RecordEvent], RecordState] = {
    ("pending", "decide"): "pending",
    ("resuming", "decide"): "resuming",  # taken by the next claim
    ("resting", "decide"): "resting",  # of what an earlier pause asked; taken once the program asks that again
    ("pending", "claim"): "resuming",
    ("resuming", "claim"): "resuming",  # of an owner whose lease is over
    ("resting", "claim"): "resting",  # likewise, by its id alone
    ("pending", "pause"): "pending",  # somebody went on without the store
    ("resuming", "pause"): "pending",
    ("resting", "pause"): "pending",  # it has come to ask somebody
    ("resuming", "rest"): "resting",
    ("resting", "rest"): "resting",
    ("resuming", "release"): "pending",
    ("resting", "release"): "resting",
    ("resuming", "complete"): "completed",
    ("resting", "complete"): "completed",
    ("resuming", "fail"): "failed",
    ("resting", "fail"): "failed",
    ("resuming", "lose"): "lost",
    ("pending", "lose"): "lost",  # given back after a takeover, and its continuation holds no more
    ("resting", "lose"): "lost",
    ("pending", "expire"): "expired",
    ("resting", "expire"): "expired",
    ("pending", "withdraw"): "withdrawn",
    ("resting", "withdraw"): "withdrawn",
    ("lost", "close"): "failed",
    ("lost", "run again"): "pending",
    ("pending", "run again"): "pending",  # what no host could resume: now, not later
}

REQUESTS: dict[tuple[RequestState, RequestEvent], RequestState] = {
    ("waiting", "decide"): "decided",
    ("decided", "apply"): "applied",
    ("decided", "refuse"): "waiting",
    ("waiting", "supersede"): "superseded",
    ("decided", "supersede"): "superseded",
    ("waiting", "ask"): "waiting",
    ("decided", "ask"): "decided",
    ("applied", "ask"): "waiting",
    ("superseded", "ask"): "waiting",
}


def record_after(state: RecordState, event: RecordEvent, record_id: str = "") -> RecordState:
    """Return the state of a record to which this happens. Raises `StoreError` where it cannot."""
    after = RECORDS.get((state, event))
    if after is not None:
        return after
    details = {"record_id": record_id, "state": state}
    if state == "expired":
        raise RecordExpired(f"{record_id!r} is not pending any more: it has expired", details=details)
    if state in ENDED:
        raise RequestSettled(f"{record_id!r} is not pending any more: it is {state}", details=details)
    if state == "lost":
        raise RecordLost(f"{record_id!r} is not pending any more: nobody knows what became of it", details=details)
    raise StoreError(f"{record_id!r} is {state}: it cannot {event} now", details=details)


def request_after(state: RequestState, event: RequestEvent) -> RequestState:
    """Return the state of a request to which this happens. Raises `StoreError` where it cannot."""
    after = REQUESTS.get((state, event))
    if after is None:
        raise StoreError(f"a request that is {state} cannot {event}")
    return after
