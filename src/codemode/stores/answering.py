"""Decides, claims and runs in one, for whoever has a person and the tools in the same process. Knows no database."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from ..host.cancellation import to_its_end
from . import deciding, leasing
from .answers import Answer
from .applying import (
    end_of,
    may_have_begun,
    not_resumable,
    refusal_of,
    renewed,
    resumed,
    takes_record,
    tool_of,
    written,
)
from .audit import By
from .errors import RequestSuperseded, StoreError
from .keeping import said_by
from .owners import new_owner
from .session import Database, Session
from .states import record_after
from .values import ALL_TENANTS, LEASE_MS, Lease, Tenant

_LOOK_SECONDS = 0.5
ClaimedT = TypeVar("ClaimedT")


class Answering(ABC):
    """The part of a store that runs what was decided."""

    _database: Database

    async def answer(
        self,
        interrupt_id: str,
        resolution: Any,
        resume: Callable[..., Awaitable[Any]],
        *,
        actor: str = "",
        tenant: Tenant = ALL_TENANTS,
        address: str | None = None,
    ) -> Any:
        """See `InterruptStore.answer`."""
        by = said_by(actor, address=address)
        owner = new_owner()
        with self._database.watch() as watch:
            while True:
                answers = await self._checked({interrupt_id: resolution}, tenant)
                lease = await self._write_claim(
                    lambda session, answers=answers: _decide_and_claim(session, answers, by, tenant, owner),
                    {interrupt_id: "whoever answered was cancelled"},
                )
                if lease is None:
                    await watch.wait(_LOOK_SECONDS)
                    continue
                if isinstance(lease, RequestSuperseded):
                    raise lease
                result = await self._resumed(lease, resume, interrupt_id)
                if interrupt_id in lease.resolutions:
                    return result

    async def _resumed(self, lease: Lease, resume: Callable[..., Awaitable[Any]], interrupt_id: str) -> Any:
        try:
            async with renewed(self, lease):
                paused = lease.record if takes_record(resume) else lease.interrupt
                result = await resumed(resume, paused, lease.resolutions)
        except (Exception, asyncio.CancelledError) as error:
            end = end_of(error)
            if end is not None:
                # What was begun waits in the recovery; else the program has come to its end.
                await written(self.settle(lease, end, tool=tool_of(resume)))
            elif not may_have_begun(error):
                reason = refusal_of(error) or "the program could not go on"
                unfit = not_resumable(error)
                await written(self.release(lease, refusals={interrupt_id: reason}, not_resumable=unfit))
            raise
        await written(self.settle(lease, result, tool=tool_of(resume)))
        return result

    async def _write_claim(
        self, work: Callable[[Session], ClaimedT], refusals: Mapping[str, str] | None = None
    ) -> ClaimedT:
        attempt = asyncio.ensure_future(self._write(work))
        try:
            return await to_its_end(attempt)
        except asyncio.CancelledError:
            # The thread went on, and what it claimed would be nobody's until the lease is over.
            lease = None if attempt.cancelled() or attempt.exception() is not None else attempt.result()
            if isinstance(lease, Lease):
                await self.release(lease, refusals=refusals)
            raise

    @abstractmethod
    async def _checked(self, decisions: Mapping[str, Any], tenant: Tenant) -> dict[str, Answer]: ...

    @abstractmethod
    async def _write(self, work: Callable[[Session], Any]) -> Any: ...

    @abstractmethod
    async def renew(self, lease: Lease) -> bool:
        """See `InterruptStore.renew`."""

    @abstractmethod
    async def settle(self, lease: Lease, result: Any, *, tool: Any = None) -> bool:
        """See `InterruptStore.settle`."""

    @abstractmethod
    async def release(
        self,
        lease: Lease,
        *,
        refusals: Mapping[str, str] | None = None,
        delay_ms: int = 0,
        not_resumable: str | None = None,
    ) -> bool:
        """See `InterruptStore.release`."""


def _decide_and_claim(
    session: Session, answers: Mapping[str, Answer], by: By, tenant: Tenant, owner: str
) -> Lease | RequestSuperseded | None:
    """Return a lease; None while somebody else has one. The error is returned, so that what it says stays written."""
    found, _ = deciding.named(session, list(answers), tenant)
    (one,) = found.values()
    statement = "SELECT state, ready_at_ms FROM codemode_records WHERE id = ?"
    state, ready_at_ms = session.one(statement, one.record_id) or ("pending", None)
    if state == "resuming":
        if ready_at_ms is not None and ready_at_ms > session.now_ms:
            return None
        return leasing.claim(session, one.record_id, owner, LEASE_MS)
    if state == "resting" and one.request.state in ("waiting", "decided"):
        raise StoreError(f"{one.record_id!r} is resting: it asks nobody now, and whoever has it goes on with it")
    record_after(state, "claim", one.record_id)
    if one.request.state == "applied":
        raise deciding.already(one.request)
    try:
        deciding.decide(session, answers, by, tenant, {})
    except deciding.NotChecked:
        return None
    lease = leasing.claim(session, one.record_id, owner, LEASE_MS)
    if lease is None and session.one(
        "SELECT 1 FROM codemode_requests WHERE interrupt_id = ? AND state = 'waiting'", *answers
    ):
        return RequestSuperseded(f"{next(iter(answers))!r} was not answered: {leasing.CHANGED}")
    return lease
