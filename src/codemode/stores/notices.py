"""Notices of what waits, each to be sent at least once: what an outbox is. Knows no database, nor how one is sent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from ..data.json_values import canonical_json
from .values import LEASE_MS, Record


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
        named = canonical_json([self.target, self.record.id, self.record.version])
        return hashlib.sha256(named.encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedNotice:
    """A notice that is given up: ``attempts`` have failed, the last one with ``error``. The time is Unix time."""

    target: str
    record_id: str
    version: int
    attempts: int
    error: str
    failed_at_ms: int


class Outbox(Protocol):
    """Notices for one target, on the database of a store, for whoever sends them: one of them sends each.

    Each method is one transaction, and raises `StoreUnavailable` as those of a store.
    """

    async def fill(self) -> int:
        """Make notices of the changes since the last time, and return how many changes those were.

        One for each version of a record that waits for a person. The first time they are made of what waits now. Call
        it again until there are none: it takes so many at a time.
        """
        ...

    async def claim(self, *, limit: int = 1, lease_ms: int = LEASE_MS) -> tuple[Notice, ...]:
        """Take at most ``limit`` notices, up to 100, that are to be sent now, for as long as the lease says.

        Those whose lease is over are taken again: nobody knows whether they were sent. What waits no more, as it was
        decided, has ended or has gone on, is dropped, and made again should it wait again. Raises `ValueError`.
        """
        ...

    async def settle(self, notice: Notice, *, error: str | None = None, retry_ms: int | None = None) -> bool:
        """Write that a notice was sent, or with which ``error`` it was not: to be tried again in so long, or given up.

        What is given up is in the audit too. False when it is somebody else's by now; then nothing is written. Raises
        `ValueError`.
        """
        ...
