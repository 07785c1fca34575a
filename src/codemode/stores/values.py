"""What a store takes and gives. Knows no database."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, Protocol, TypeAlias

from ..continuations.journal import JOURNAL_LEASE_MS
from ..interrupts.interrupt import Interrupt
from .states import RecordState, RequestState


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

    ``input_schema``, ``description`` and ``annotations`` are those of its tool, where the tools were told. ``refusal``
    says why an answer was given back. ``line`` and ``column`` are its place in the program, where that is known.
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


class Watch(Protocol):
    """Wakes one that waits. Whatever happens after it was made ends the wait, early or at the next look."""

    async def wait(self, seconds: float) -> None:
        """Wait for a change, at most so long."""
        ...
