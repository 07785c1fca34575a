"""Records, requests, leases, changes and notices as values, and their state machines."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, get_args

from ..continuations.journal import JOURNAL_LEASE_MS
from ..data.exact_integers import restore_edited_integers, restore_listed_integers
from ..data.json_values import encode_canonical_json
from ..interrupts.interrupt import Interrupt
from .errors import RecordExpiredError, RecordLostError, RequestSettledError, StoreError

# A record is one invocation that has paused or is suspended ("resting"). A resting record has an owner and waits for no
# person. A record that has ended never changes.

RecordState = Literal["resting", "pending", "resuming", "completed", "failed", "lost", "expired", "withdrawn"]
RequestState = Literal["waiting", "decided", "applied", "superseded"]
RecordEvent = Literal[
    "decide", "claim", "pause", "rest", "release", "complete", "fail", "lose", "expire", "withdraw", "close",
    "run again",
]  # fmt: skip
RequestEvent = Literal["decide", "apply", "refuse", "supersede", "ask"]

RECORD_STATES: tuple[RecordState, ...] = get_args(RecordState)
ENDED_STATES: frozenset[RecordState] = frozenset({"completed", "failed", "expired", "withdrawn"})
"""A lost record has not ended: a person has to close it or run it again."""
OWNED_STATES: frozenset[RecordState] = frozenset({"resuming", "resting"})
"""A host has a lease on these records, or died with one."""

RECORD_TRANSITIONS: dict[tuple[RecordState, RecordEvent], RecordState] = {
    ("pending", "decide"): "pending",
    ("resuming", "decide"): "resuming",  # the next claim takes it
    ("resting", "decide"): "resting",  # decided for an earlier pause; used when the program asks again
    ("pending", "claim"): "resuming",
    ("resuming", "claim"): "resuming",  # its lease has expired
    ("resting", "claim"): "resting",  # its lease has expired; claimed only by id
    ("pending", "pause"): "pending",  # resumed without the store
    ("resuming", "pause"): "pending",
    ("resting", "pause"): "pending",  # the program asks a person
    ("resuming", "rest"): "resting",
    ("resting", "rest"): "resting",
    ("resuming", "release"): "pending",
    ("resting", "release"): "resting",
    ("resuming", "complete"): "completed",
    ("resting", "complete"): "completed",
    ("resuming", "fail"): "failed",
    ("resting", "fail"): "failed",
    ("resuming", "lose"): "lost",
    ("pending", "lose"): "lost",  # released after a takeover; its continuation has expired
    ("resting", "lose"): "lost",
    ("pending", "expire"): "expired",
    ("resting", "expire"): "expired",
    ("pending", "withdraw"): "withdrawn",
    ("resting", "withdraw"): "withdrawn",
    ("lost", "close"): "failed",
    ("lost", "run again"): "pending",
    ("pending", "run again"): "pending",  # no host could resume it: try again now
}

REQUEST_TRANSITIONS: dict[tuple[RequestState, RequestEvent], RequestState] = {
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


def compute_next_record_state_or_raise(state: RecordState, event: RecordEvent, record_id: str = "") -> RecordState:
    """Return the state of a record after an event. Raises `StoreError` for an impossible one."""
    next_state = RECORD_TRANSITIONS.get((state, event))
    if next_state is not None:
        return next_state
    details = {"record_id": record_id, "state": state}
    if state == "expired":
        raise RecordExpiredError(f"{record_id!r} is not pending any more: it has expired", details=details)
    if state in ENDED_STATES:
        raise RequestSettledError(f"{record_id!r} is not pending any more: it is {state}", details=details)
    if state == "lost":
        raise RecordLostError(f"{record_id!r} is not pending any more: its outcome is unknown", details=details)
    raise StoreError(f"{record_id!r} is {state}: it cannot {event} now", details=details)


def compute_next_request_state_or_raise(state: RequestState, event: RequestEvent) -> RequestState:
    """Return the state of a request after an event. Raises `StoreError` for an impossible one."""
    next_state = REQUEST_TRANSITIONS.get((state, event))
    if next_state is None:
        raise StoreError(f"a request that is {state} cannot {event}")
    return next_state


class AllTenants(Enum):
    """The type of `ALL_TENANTS`."""

    ALL_TENANTS = "ALL_TENANTS"


ALL_TENANTS: Final = AllTenants.ALL_TENANTS
"""Passed instead of a tenant to select the records of all tenants."""
Tenant: TypeAlias = str | Literal[AllTenants.ALL_TENANTS]
Tenants: TypeAlias = AbstractSet[str] | Tenant
"""A set selects the records of any of its tenants, at most 200."""
ListedState: TypeAlias = RecordState | Literal["waiting"]
"""Records are ``waiting`` while a person may decide about one of their requests: they are pending or resuming."""
ListOrder: TypeAlias = Literal["newest", "expiring"]

LEASE_MS: Final = JOURNAL_LEASE_MS


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRequest:
    """A call that waits, or has waited, for a decision.

    ``input`` is what the approver saw; ``decision`` and ``actor`` belong to the answer. ``input_schema``,
    ``description``, ``annotations``, ``title`` and ``summary`` are those of its tool, if known; the last two come from
    the host only, never from a server. ``refusal`` says why an answer was refused. ``line`` and ``column`` locate the
    call in the program, if known.
    """

    interrupt_id: str
    kind: str
    tool_name: str
    input: Any
    payload: Mapping[str, Any]
    input_schema: Any = None
    description: str = ""
    annotations: Mapping[str, Any] | None = None
    state: RequestState = "waiting"
    decision: Any = None
    actor: str | None = None
    decided_at_ms: int | None = None
    refusal: str | None = None
    line: int | None = None
    column: int | None = None
    title: str = ""
    summary: str = ""

    def read_edited_input(self, decision: Mapping[str, Any]) -> Any:
        """Return the edited input of an approval, with large integers restored."""
        return restore_edited_integers(self.input, restore_listed_integers(dict(decision))["input"])


@dataclass(frozen=True, slots=True)
class RecordVersion:
    """One pause of an invocation, with the ids of the requests that waited in it."""

    version: int
    created_at_ms: int
    interrupt_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """The outcome of a record: ``value`` as plain JSON if it completed, else ``error``, a message for people."""

    value: Any = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One invocation that has paused or is suspended. Times are Unix time; ``outcome`` is None until it has ended.

    ``version`` counts its pauses. ``not_resumable`` says why the last host could not resume it (another key, another
    version of codemode or of the engine, a missing tool); None once a host could. `InterruptStore.list` leaves
    ``source`` and ``payload`` None.
    """

    id: str
    version: int
    versions: tuple[RecordVersion, ...]
    state: RecordState
    outer_tool: str
    tenant: str
    app: str
    labels: Mapping[str, str]
    source: str | None
    payload: Any
    created_at_ms: int
    expires_at_ms: int
    requests: tuple[StoredRequest, ...]
    outcome: RecordOutcome | None
    not_resumable: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of records. ``next`` is the cursor of the next page; None for the last page."""

    records: tuple[Record, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a record. Sequence numbers grow in the order in which changes become visible.

    ``kind`` is put, rested, decided, claimed, paused, released, completed, failed, lost, run_again, expired or
    withdrawn. ``tenant`` is the record's.
    """

    sequence: int
    record_id: str
    kind: str
    tenant: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """A claimed record: ``interrupt`` with all its decisions in ``resolutions``.

    ``number`` identifies the claim. ``is_takeover``: the previous owner did not finish, and ``resolutions`` are those
    that it had. A resting record has no resolutions. ``resumed_before`` is the previous owner.
    """

    record: Record
    number: int
    owner: str
    lease_ms: int
    is_takeover: bool
    interrupt: Interrupt
    resolutions: Mapping[str, Any]
    resumed_before: LastResumed | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredPause(Interrupt):
    """A pause with new columns of its record, returned by a custom ``resume``.

    ``tool``, ``source`` and ``payload`` are those of `InterruptStore.put`; None keeps the record's. Returning the very
    pause that was resumed means that nothing ran; with ``waits_for_all`` because answers are missing, and the record is
    not offered again before the next answer.
    """

    tool: Any = None
    source: str | None = None
    payload: Any = None
    waits_for_all: bool = False


@dataclass(frozen=True, slots=True)
class LastResumed:
    """The last owner that claimed a record of an app and could resume it, and when."""

    owner: str
    at_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """A waiting version of a record that is to be sent to one target by the process that claimed the notice.

    ``record`` is a snapshot without ``source`` and ``payload``. ``attempts`` counts failed attempts, ``number``
    identifies the claim.
    """

    target: str
    record: Record
    attempts: int
    number: int

    @property
    def id(self) -> str:
        """An id for receivers, the same in each attempt."""
        key = encode_canonical_json([self.target, self.record.id, self.record.version])
        return hashlib.sha256(key.encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedNotice:
    """An undelivered notice: the number of attempts and the error of the last one. The time is Unix time."""

    target: str
    record_id: str
    version: int
    attempts: int
    error: str
    failed_at_ms: int
