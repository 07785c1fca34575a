"""Records, requests, leases, changes and notices as values, and their states."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, get_args

from ..continuations.journal import JOURNAL_LEASE_MS
from ..data.exact_integers import restore_edited_integers, restore_listed_integers
from ..data.json_values import canonical_json
from ..interrupts.interrupt import Interrupt
from .errors import RecordExpiredError, RecordLostError, RequestSettledError, StoreError

# A record is one invocation that has paused, or that rests: it has an owner then, and waits for no person. It ends
# once; what has ended never changes again.

RecordState = Literal["resting", "pending", "resuming", "completed", "failed", "lost", "expired", "withdrawn"]
RequestState = Literal["waiting", "decided", "applied", "superseded"]
RecordEvent = Literal[
    "decide", "claim", "pause", "rest", "release", "complete", "fail", "lose", "expire", "withdraw", "close",
    "run again",
]  # fmt: skip
RequestEvent = Literal["decide", "apply", "refuse", "supersede", "ask"]

RECORD_STATES: tuple[RecordState, ...] = get_args(RecordState)
ENDED_STATES: frozenset[RecordState] = frozenset({"completed", "failed", "expired", "withdrawn"})
"""A lost record has not ended: somebody has to say so."""
OWNED_STATES: frozenset[RecordState] = frozenset({"resuming", "resting"})
"""Somebody goes on with these, or has died over it."""

RECORD_TRANSITIONS: dict[tuple[RecordState, RecordEvent], RecordState] = {
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


def next_record_state(state: RecordState, event: RecordEvent, record_id: str = "") -> RecordState:
    """Return the state of a record to which this happens. Raises `StoreError` where it cannot."""
    next_state = RECORD_TRANSITIONS.get((state, event))
    if next_state is not None:
        return next_state
    details = {"record_id": record_id, "state": state}
    if state == "expired":
        raise RecordExpiredError(f"{record_id!r} is not pending any more: it has expired", details=details)
    if state in ENDED_STATES:
        raise RequestSettledError(f"{record_id!r} is not pending any more: it is {state}", details=details)
    if state == "lost":
        raise RecordLostError(f"{record_id!r} is not pending any more: nobody knows what became of it", details=details)
    raise StoreError(f"{record_id!r} is {state}: it cannot {event} now", details=details)


def next_request_state(state: RequestState, event: RequestEvent) -> RequestState:
    """Return the state of a request to which this happens. Raises `StoreError` where it cannot."""
    next_state = REQUEST_TRANSITIONS.get((state, event))
    if next_state is None:
        raise StoreError(f"a request that is {state} cannot {event}")
    return next_state


class AllTenants(Enum):
    """The type of `ALL_TENANTS`."""

    ALL_TENANTS = "ALL_TENANTS"


ALL_TENANTS: Final = AllTenants.ALL_TENANTS
"""Said in place of a tenant by whoever is to see those of all."""
Tenant: TypeAlias = str | Literal[AllTenants.ALL_TENANTS]
Tenants: TypeAlias = AbstractSet[str] | Tenant
"""Of a set those of any of its names are seen, at most 200."""
ListedState: TypeAlias = RecordState | Literal["waiting"]
"""Records are ``waiting`` while a person may decide about one of their requests: they are pending or resuming."""
ListOrder: TypeAlias = Literal["newest", "expiring"]

LEASE_MS: Final = JOURNAL_LEASE_MS


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRequest:
    """One call that waits, or has waited. ``input`` is what was shown; ``decision`` and ``actor`` are of its answer.

    ``input_schema``, ``description``, ``annotations``, ``title`` and ``summary`` are those of its tool, where the tools
    were told; the last two are set by the host alone, never by a server. ``refusal`` says why an answer was given back.
    ``line`` and ``column`` are its place in the program, where that is known.
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
        """Return the input that an approval has in place of the one that was shown, with its integers as they are."""
        return restore_edited_integers(self.input, restore_listed_integers(dict(decision))["input"])


@dataclass(frozen=True, slots=True)
class RecordVersion:
    """One pause of an invocation. ``interrupt_ids`` waited in it."""

    version: int
    created_at_ms: int
    interrupt_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """How a record ended: ``value`` when it has completed, else ``error``, a text for people."""

    value: Any = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One invocation that has paused, or rests. Times are Unix time; ``outcome`` is None until it has ended.

    ``version`` counts its pauses. ``not_resumable`` says why the last host that was to resume it could not: another
    key, another version of codemode or of the engine, or a tool that it lacks; None once one could.
    `InterruptStore.list` leaves ``source`` and ``payload`` None.
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
    """Records, in the order that was asked for. ``next`` is the cursor of the next page; None when this is the last."""

    records: tuple[Record, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """Something has happened to a record. Sequences grow in the order in which changes can be seen.

    ``kind`` is put, rested, decided, claimed, paused, released, completed, failed, lost, run_again, expired or
    withdrawn. ``tenant`` is the record's.
    """

    sequence: int
    record_id: str
    kind: str
    tenant: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """A record that somebody goes on with: ``interrupt`` with all answers there are, in ``resolutions``.

    ``number`` tells this claim from later ones. ``is_takeover``: the one before did not come to its end, and the
    answers are those that it was given. A record that rests has none: nobody was asked. ``resumed_before`` says who had
    claimed it last before.
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
    """A pause with what its record says of it from now on: what a ``resume`` of your own gives back.

    ``tool``, ``source`` and ``payload`` are as `InterruptStore.put` has them; None leaves those of the record. The
    pause that was resumed itself says that nothing was run, with ``waits_for_all`` because answers are missing: then
    the record is given to nobody before there is another one.
    """

    tool: Any = None
    source: str | None = None
    payload: Any = None
    waits_for_all: bool = False


@dataclass(frozen=True, slots=True)
class LastResumed:
    """Who has last claimed a record of an app and could resume it, ``owner``, and when."""

    owner: str
    at_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """A version of a record that waits for a person, to be told to one target by whoever has claimed it.

    ``record`` is as it was when it was claimed, without ``source`` and ``payload``. ``attempts`` have failed before.
    ``number`` tells this claim from later ones.
    """

    target: str
    record: Record
    attempts: int
    number: int

    @property
    def id(self) -> str:
        """What names it for those who are told: the same in each attempt."""
        key = canonical_json([self.target, self.record.id, self.record.version])
        return hashlib.sha256(key.encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedNotice:
    """A notice that is given up: ``attempts`` have failed, the last one with ``error``. The time is Unix time."""

    target: str
    record_id: str
    version: int
    attempts: int
    error: str
    failed_at_ms: int
