"""The part of a store that keeps what somebody holds by its record's id: programs that rest, and lost ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..continuations.guard import ResumeGuard
from ..errors import Resumable
from ..host.own_thread import in_own_thread
from ..host.threads import LARGE_CHARACTERS, run_check
from ..interrupts.interrupt import Interrupt
from . import ending, finding, keeping, resting
from .rows import interrupt_of
from .session import Session
from .values import ALL_TENANTS, LEASE_MS, LastResumed, Lease, Tenant

ResultT = TypeVar("ResultT")


class Holding(ABC):
    """Rests, taken over by whoever waits elsewhere, and the choice to run again."""

    _guard: ResumeGuard
    _most_open: int | None

    async def rest(
        self,
        interrupt: Resumable,
        *,
        owner: str | None = None,
        lease: Lease | None = None,
        tool: Any = None,
        tenant: str = "",
        app: str = "",
        labels: Mapping[str, str] | None = None,
        source: str | None = None,
        payload: Any = None,
        lease_ms: int = LEASE_MS,
    ) -> Lease | None:
        """See `InterruptStore.rest`."""
        if (owner is None) == (lease is None):
            raise ValueError("rest takes an owner for a new record, or the lease of one that there is")
        kept = Interrupt.of(interrupt)
        if lease is not None:
            new = await in_own_thread(lambda: keeping.again(kept, payload=payload), "codemode-store")
            return await self._write(lambda session: resting.rest(session, lease, new))
        whose = keeping.require_text(owner, "owner")
        keeping.require_lease(lease_ms)
        new = await in_own_thread(
            lambda: keeping.kept(kept, tool, tenant, app, labels, source, payload), "codemode-store"
        )
        return await self._write_claim(lambda session: resting.begin(session, new, whose, lease_ms, self._most_open))

    async def last_resumed(self, *, tenant: str, app: str) -> LastResumed | None:
        """See `InterruptStore.last_resumed`."""
        return await self._read(lambda session: finding.last_resumed(session, tenant, app))

    async def _take(self, record_id: str, owner: str, tenant: Tenant, lease_ms: int) -> Lease | None:
        # As in `claim`: while there is nothing to do nobody is kept from writing.
        if not await self._read(lambda session: resting.is_free(session, record_id, tenant)):
            return None
        return await self._write_claim(lambda session: resting.take(session, record_id, owner, tenant, lease_ms))

    async def run_again(
        self,
        record_id: str,
        *,
        actor: str,
        reason: str = "",
        tenant: Tenant = ALL_TENANTS,
        address: str | None = None,
    ) -> None:
        """See `InterruptStore.run_again`."""
        by = keeping.said_by(actor, reason=reason, address=address)
        lost = await self._read(lambda session: ending.lost_interrupt(session, record_id, tenant))
        if lost is not None:
            paused = await run_check(LARGE_CHARACTERS, lambda: interrupt_of(lost))
            await self._guard.release(keeping.nonce_of(paused))
        await self._write(lambda session: ending.run_again(session, record_id, by, tenant))

    @abstractmethod
    async def _read(self, work: Callable[[Session], ResultT]) -> ResultT: ...

    @abstractmethod
    async def _write(self, work: Callable[[Session], ResultT]) -> ResultT: ...

    @abstractmethod
    async def _write_claim(self, work: Callable[[Session], Lease | None]) -> Lease | None: ...
