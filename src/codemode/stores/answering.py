"""Decides, claims and runs in one, for whoever has a person and the tools in the same process. Knows no database."""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..errors import (
    CodeModeAbortedError,
    CodeModeConcurrencyError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeWorkerError,
)
from ..host.cancellation import to_its_end
from ..interrupts.interrupt import Interrupt
from . import deciding, leasing
from .errors import StoreUnavailable
from .keeping import require_text
from .protocol import ALL_TENANTS, LEASE_MS, Lease, Tenant
from .session import Database, Session
from .states import record_after

_log = logging.getLogger("codemode.stores")
_LOOK_SECONDS = 0.5
_NOTHING_RAN = (CodeModeAbortedError, CodeModeConcurrencyError, CodeModeTimeoutError, CodeModeWorkerError)


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
    ) -> Any:
        """See `InterruptStore.answer`."""
        require_text(actor, "actor")
        owner = secrets.token_hex(8)
        with self._database.watch() as watch:
            while True:
                texts = await self._checked({interrupt_id: resolution}, tenant)
                lease = await self._write_claim(
                    lambda session, text=texts[interrupt_id]: _decide_and_claim(
                        session, interrupt_id, text, actor, tenant, owner
                    ),
                    {interrupt_id: "whoever answered was cancelled"},
                )
                if lease is None:
                    await watch.wait(_LOOK_SECONDS)
                    continue
                result = await self._resumed(lease, resume, interrupt_id)
                if interrupt_id in lease.resolutions:
                    return result

    async def _resumed(self, lease: Lease, resume: Callable[..., Awaitable[Any]], interrupt_id: str) -> Any:
        try:
            async with self._renewed(lease):
                result = await _resume(resume, lease.interrupt, lease.resolutions)
        except (Exception, asyncio.CancelledError) as error:
            await self._settled(self._settle_failure(lease, error, interrupt_id))
            raise
        await self._settled(self.settle(lease, result))
        return result

    async def _settled(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await to_its_end(work)
        except StoreUnavailable:
            # The program has run: once the lease is over the same answers give what the guard has of it.
            _log.exception("what a record came to could not be written")

    async def _settle_failure(self, lease: Lease, error: BaseException, interrupt_id: str) -> None:
        failure = error if isinstance(error, CodeModeError) else error.__cause__
        if isinstance(failure, CodeModeError) and (failure.recovery is not None or _is_programs_end(failure)):
            # What was begun waits in the recovery; else the program has come to its end.
            await self.settle(lease, failure)
            return
        reason = error.message if isinstance(error, CodeModeProtocolError) else "the program could not go on"
        await self.release(lease, refusals={interrupt_id: reason})

    @asynccontextmanager
    async def _renewed(self, lease: Lease) -> AsyncGenerator[None]:
        keeper = asyncio.get_running_loop().create_task(self._keep(lease))
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.wait([keeper])

    async def _keep(self, lease: Lease) -> None:
        while True:
            await asyncio.sleep(lease.lease_ms / 3000)
            try:
                if not await self.renew(lease):
                    return
            except Exception:  # noqa: BLE001 - the database may be back before the lease is over
                _log.warning("the lease of a record could not be renewed", exc_info=True)

    async def _write_claim(
        self, work: Callable[[Session], Lease | None], refusals: Mapping[str, str] | None = None
    ) -> Lease | None:
        attempt = asyncio.ensure_future(self._write(work))
        try:
            return await to_its_end(attempt)
        except asyncio.CancelledError:
            # The thread went on, and what it claimed would be nobody's until the lease is over.
            if not attempt.cancelled() and attempt.exception() is None and (lease := attempt.result()) is not None:
                await self.release(lease, refusals=refusals)
            raise

    @abstractmethod
    async def _checked(self, decisions: Mapping[str, Any], tenant: Tenant) -> dict[str, str]: ...

    @abstractmethod
    async def _write(self, work: Callable[[Session], Any]) -> Any: ...

    @abstractmethod
    async def renew(self, lease: Lease) -> bool:
        """See `InterruptStore.renew`."""

    @abstractmethod
    async def settle(self, lease: Lease, result: Any) -> bool:
        """See `InterruptStore.settle`."""

    @abstractmethod
    async def release(self, lease: Lease, *, refusals: Mapping[str, str] | None = None, delay_ms: int = 0) -> bool:
        """See `InterruptStore.release`."""


def _decide_and_claim(
    session: Session, interrupt_id: str, text: str, actor: str, tenant: Tenant, owner: str
) -> Lease | None:
    """Return a lease; None while somebody else has one."""
    found, _ = deciding.named(session, [interrupt_id], tenant)
    one = found[interrupt_id]
    statement = "SELECT state, ready_at_ms FROM codemode_records WHERE id = ?"
    state, ready_at_ms = session.one(statement, one.record_id) or ("pending", None)
    if state == "resuming":
        if ready_at_ms is not None and ready_at_ms > session.now_ms:
            return None
        return leasing.claim(session, one.record_id, owner, LEASE_MS)
    record_after(state, "claim", one.record_id)
    if one.request.state == "applied":
        raise deciding.already(one.request)
    deciding.decide(session, {interrupt_id: text}, actor, tenant, {})
    return leasing.claim(session, one.record_id, owner, LEASE_MS)


def _is_programs_end(error: CodeModeError) -> bool:
    if isinstance(error, CodeModeProtocolError):
        # Of the rest the continuation is refused or its answers are: they may be given again, unless others were.
        return error.details.get("origin") not in ("continuation", "decision") or bool(error.details.get("superseded"))
    return not isinstance(error, _NOTHING_RAN)


def _resume(resume: Callable[..., Awaitable[Any]], interrupt: Interrupt, answers: Mapping[str, Any]) -> Awaitable[Any]:
    # By name wherever it can be: the second argument of `CodeModeTool.resume` is one resolution.
    return resume(interrupt, resolutions=answers) if _takes_resolutions(resume) else resume(interrupt, answers)


def _takes_resolutions(resume: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(resume).parameters
    except (TypeError, ValueError):
        return True
    by_name = parameters.get("resolutions")
    if by_name is not None and by_name.kind is not by_name.POSITIONAL_ONLY:
        return True
    return any(one.kind is one.VAR_KEYWORD for one in parameters.values())
