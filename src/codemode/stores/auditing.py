"""The part of a store that tells of its audit. Knows no database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeVar

from ..host.threads import LARGE_CHARACTERS, run_check
from . import finding
from .audit import AuditLine, noted
from .keeping import require_name, require_text, said_by
from .rows import tenants_of
from .session import Session
from .values import ALL_TENANTS, Tenant, Tenants

ResultT = TypeVar("ResultT")


class Auditing(ABC):
    """Who did what, read and written."""

    async def note(
        self,
        kind: str,
        *,
        actor: str,
        tenant: Tenant,
        address: str | None = None,
        details: Mapping[str, Any] | None = None,
        record_id: str | None = None,
    ) -> None:
        """See `InterruptStore.note`."""
        by, whose = said_by(actor, address=address), None if tenant is ALL_TENANTS else require_text(tenant, "tenant")
        about = None if record_id is None else require_name(record_id, "record_id")
        said = await run_check(LARGE_CHARACTERS, lambda: noted(kind, details or {}))
        line: dict[str, Any] = {"actor": by.actor, "address": by.address, "details": said}
        await self._write(lambda session: session.audit(kind, whose, about, **line))

    async def audit(
        self,
        *,
        tenant: Tenants,
        after: int | None = None,
        record_id: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> AsyncGenerator[AuditLine]:
        """See `InterruptStore.audit`."""
        if after is not None:
            finding.require_sequence(after)
        tenants_of(tenant)
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        which = finding.Lines(tenant, record_id, newest_first)
        while limit is None or limit > 0:
            found = await self._read(
                lambda session, after=after, limit=limit: finding.lines(session, which, after, limit)
            )
            for line in found:
                yield line
            if not found:
                return
            after, limit = found[-1].sequence, None if limit is None else limit - len(found)

    async def audit_head(self) -> str:
        """See `InterruptStore.audit_head`."""
        return await self._read(finding.audit_head)

    @abstractmethod
    async def _read(self, work: Callable[[Session], ResultT]) -> ResultT: ...

    @abstractmethod
    async def _write(self, work: Callable[[Session], ResultT]) -> ResultT: ...
