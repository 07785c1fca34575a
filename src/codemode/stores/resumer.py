"""Resume decided records where the tools are, under a renewed lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self

from ..errors import CodeModeProtocolError
from ..host.cancellation import shield_until_done
from ..options.parts import CodeModeOptions, ContinuationOptions
from .leases import create_owner_name
from .record_writes import require_lease_duration
from .records import LEASE_MS, Lease, Tenant
from .resume_outcome import (
    OutageLog,
    call_resume,
    get_bound_tool,
    get_declared_app,
    get_not_resumable_reason,
    get_record_ending_error,
    get_refusal_reason,
    is_call_start_unknown,
    is_outcome_permanently_unknown,
    keep_lease_renewed,
    require_callable_resume,
    takes_lease,
    takes_record,
    write_or_log_despite_cancellation,
)
from .rows import require_tenant

if TYPE_CHECKING:
    from .interrupt_store import InterruptStore

_log = logging.getLogger("codemode.stores")


# Finds the options of the tools of all surfaces by attribute, without knowing their classes.


def get_continuation_options(tool: Any) -> ContinuationOptions | None:
    """Return the continuation options of a surface's tool; None for another object."""
    options = getattr(tool, "options", None)
    for candidate in (options, getattr(options, "settings", None), getattr(tool, "settings", None)):
        if isinstance(candidate, CodeModeOptions):
            return candidate.continuation
    return None


def require_tool_uses_store_guard(store: InterruptStore, tool: Any, options_name: str = "the tool's options") -> None:
    """Raise `ValueError` if a tool uses another guard than the store's: a late host could repeat a call.

    ``options_name`` names the options that should have the guard.
    """
    continuation = get_continuation_options(tool)
    if continuation is not None and continuation.guard is not store.guard:
        raise ValueError(
            f"{options_name} use another guard than the store's, and calls could run twice: write"
            " continuation={'guard': store.guard} in them"
        )


_POLL_SECONDS = 0.5
_SWEEP_SECONDS = 10.0
_DENY_BEFORE_EXPIRY_MS = 60_000
_RETRY_MS = 5_000


class Resumer:
    """Resume decided records of a store while its ``async with`` block runs, at most ``concurrency`` at a time.

    ``resume`` takes an interrupt and its answers as `CodeModeTool.resume` does; with ``with_record``, or if its
    attribute ``takes_record`` is True, it takes the `Record`. Covers all records of ``tenant``, and of ``app`` if it is
    given or ``resume`` belongs to an object with one. At the end of the block nothing more is claimed, and running
    records finish. Raises `ValueError` for a tool whose options use another guard than the store's, and if ``resume``
    is not callable.
    """

    def __init__(
        self,
        store: InterruptStore,
        *,
        tenant: Tenant,
        resume: Callable[..., Awaitable[Any]],
        app: str | None = None,
        concurrency: int = 4,
        with_record: bool = False,
        lease_ms: int = LEASE_MS,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, got {concurrency}")
        require_callable_resume(resume)
        require_tool_uses_store_guard(store, get_bound_tool(resume))
        self._store = store
        self._tenant: Tenant = require_tenant(tenant)
        self._app = app if app is not None else get_declared_app(resume)
        self._resume = resume
        self._with_record = with_record or takes_record(resume)
        self._lease_ms = require_lease_duration(lease_ms)
        self._slots = asyncio.Semaphore(concurrency)
        self._claim_outages, self._sweep_outages = (
            OutageLog("nothing is resumed"),
            OutageLog("expired records are not marked"),
        )
        self._owner = create_owner_name()
        self._running: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._loops = [loop.create_task(self._run_claim_loop()), loop.create_task(self._run_sweep_loop())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._loops:
            task.cancel()
        try:
            await shield_until_done(asyncio.wait(self._loops))
            if self._running:
                await asyncio.wait(self._running)
        except asyncio.CancelledError:
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(self._running)
            raise

    async def _run_claim_loop(self) -> None:
        with self._store.watch() as watch:
            while True:
                await self._slots.acquire()
                lease = None
                try:
                    lease = await self._try_claim_record()
                finally:
                    if lease is None:
                        self._slots.release()
                if lease is None:
                    await watch.wait(_POLL_SECONDS)
                    continue
                task = asyncio.get_running_loop().create_task(self._resume_record(lease))
                self._running.add(task)
                task.add_done_callback(self._on_task_done)

    async def _try_claim_record(self) -> Lease | None:
        try:
            lease = await self._store.claim(
                owner=self._owner, tenant=self._tenant, app=self._app, lease_ms=self._lease_ms
            )
        except Exception as error:  # noqa: BLE001 - a store may be host code, and may work again the next time
            self._claim_outages.log_failure_if_new(error)
            return None
        self._claim_outages.log_recovery_if_failing()
        return lease

    async def _run_sweep_loop(self) -> None:
        while True:
            try:
                await self._store.sweep(deny_before_expiry_ms=_DENY_BEFORE_EXPIRY_MS)
            except Exception as error:  # noqa: BLE001 - as above
                self._sweep_outages.log_failure_if_new(error)
            else:
                self._sweep_outages.log_recovery_if_failing()
            await asyncio.sleep(_SWEEP_SECONDS)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a record could not be resumed", exc_info=error)

    async def _resume_record(self, lease: Lease) -> None:
        record_or_pause = lease.record if self._with_record else lease.interrupt
        paused = lease if takes_lease(self._resume) else record_or_pause
        try:
            async with keep_lease_renewed(self._store.renew, lease):
                result = await call_resume(self._resume, paused, lease.resolutions)
        except asyncio.CancelledError as error:
            await self._on_resume_failure(lease, error)
            raise
        except Exception as error:  # noqa: BLE001 - stored or logged
            await self._on_resume_failure(lease, error)
        else:
            await write_or_log_despite_cancellation(
                self._store.settle(lease, result, tool=get_bound_tool(self._resume))
            )

    async def _on_resume_failure(self, lease: Lease, error: BaseException) -> None:
        outcome, refusal, not_resumable = (
            get_record_ending_error(error),
            get_refusal_reason(error),
            get_not_resumable_reason(error),
        )
        if not_resumable is not None:
            _log.warning("record %s cannot be resumed here: %s", lease.record.id, not_resumable)
            await write_or_log_despite_cancellation(self._store.release(lease, not_resumable=not_resumable))
            return
        if outcome is None and is_call_start_unknown(error):
            _log.warning("a record will resume from its journal when its lease expires", exc_info=error)
            return
        if outcome is None and isinstance(error, CodeModeProtocolError) and not lease.resolutions:
            outcome = error  # no other answer is possible
        if outcome is not None:
            await write_or_log_despite_cancellation(
                self._store.settle(lease, outcome, tool=get_bound_tool(self._resume))
            )
        elif lease.is_takeover and is_outcome_permanently_unknown(error):
            await write_or_log_despite_cancellation(self._store.mark_lost(lease))
        elif refusal is not None:
            _log.warning("record %s waits for another answer, this one was refused: %s", lease.record.id, refusal)
            await write_or_log_despite_cancellation(
                self._store.release(lease, refusals=dict.fromkeys(lease.resolutions, refusal))
            )
        else:
            _log.warning("a record could not be resumed, and is tried again", exc_info=error)
            await write_or_log_despite_cancellation(self._store.release(lease, delay_ms=_RETRY_MS))
