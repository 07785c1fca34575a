"""Runs in a store: suspended under a lease, parked for a decision, or claimed by id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...data.narrowing import is_mapping, mapping_or_empty, string_or_empty
from ...execution.outcome_texts import ABORTED, INTERNAL_ERROR, SNAPSHOT_EXPIRED, SNAPSHOT_RESTORE_FAILED
from ...host.clock import monotonic_seconds, now_ms
from ...interrupts.interrupt import Interrupt
from ...stores.errors import (
    RecordExpiredError,
    RecordLostError,
    RecordWithdrawnError,
    RequestSettledError,
    StoreError,
    StoreUnavailableError,
    UnknownRequestError,
)
from ...stores.leases import create_owner_name
from ...stores.records import LEASE_MS
from ...stores.resume_outcome import write_or_log_despite_cancellation
from .options import PROFILE_NAME
from .program_run import RUN_PREFIX, ProgramRun
from .results import RUN_ID, InvalidInputError, build_failed_result, create_run_not_found_error

if TYPE_CHECKING:
    from ...execution.outcome import SuspendedRun
    from ...stores.interrupt_store import InterruptStore
    from ...stores.records import Lease, Record

_log = logging.getLogger("codemode.tools")
_POLL_SECONDS = 0.5
_MAX_REASON_CHARACTERS = 1_000
REASON_KEY = "reason"
"""Key of the reason for the suspension in the payload of a record."""
YIELDS_KEY = "yields"
"""Key of the number of yields in the payload of a record; replay from the journal yields as often."""
_SURFACE_KEY, _SCOPE_KEY, _EXPIRES_KEY = "surface", "scope", "expiresAtMs"
_EXPIRED_TEXT = "wait: this run has expired: it was not continued in time"


class StoredRuns:
    """The runs of exec and wait in a store. The id of a stored run is ``run_`` and the id of its record.

    The source of a program is stored only if its continuation is not sealed.
    """

    def __init__(self, store: InterruptStore, tenant: str, app: str, ttl_seconds: int, tool: Any) -> None:
        self._store = store
        self._tenant = tenant
        self._app = app
        self._ttl_ms = ttl_seconds * 1000
        self._tool = tool
        self._is_sealed = bool(tool.settings.continuation.seal)
        self._owner = create_owner_name()
        self.on_lost: Callable[[ProgramRun], None] = _ignore_lost_run

    async def store_suspended_run(self, run: ProgramRun, execution: SuspendedRun, reason: str, yields: int) -> bool:
        """Store a suspended run and hold its lease. Returns False if another process has it.

        Raises `StoreUnavailableError`; then the run waits only in this process.
        """
        continuation, payload = (
            await execution.store_content_and_sign_interrupt(),
            {**self._build_payload(run.scope), REASON_KEY: reason, YIELDS_KEY: yields},
        )
        if run.lease is None:
            run.lease = await self._store.put_suspended(
                continuation, owner=self._owner, payload=payload, lease_ms=LEASE_MS, **self._build_record_fields(run)
            )
            return True
        lease = await self._store.put_suspended(continuation, lease=run.lease, payload=payload)
        if lease is None:
            run.lease = None
            return False
        run.lease = lease
        return True

    async def store_parked_run(self, run: ProgramRun, interrupt: Interrupt) -> str | None:
        """Store the requests of a paused program; return the run id. Raises `StoreUnavailableError`.

        Returns None if another process has the run.
        """
        if run.lease is not None:
            lease, run.lease = run.lease, None
            is_settled = await self._store.settle(lease, interrupt, tool=self._tool)
            return to_run_id(lease.record.id) if is_settled else None
        return to_run_id(
            await self._store.put(interrupt, payload=self._build_payload(run.scope), **self._build_record_fields(run))
        )

    async def store_result(self, run: ProgramRun, result: Any) -> None:
        """Store the result of a run for processes that wait for it."""
        lease, run.lease = run.lease, None
        if lease is not None:
            await write_or_log_despite_cancellation(self._store.settle(lease, result, tool=self._tool))

    async def release_lease(
        self, run: ProgramRun, reason: str | None = None, refusals: Mapping[str, str] | None = None
    ) -> None:
        """Release a run for other processes. ``reason``: why it cannot be resumed in this process.

        ``refusals``: why answers are pending again.
        """
        lease, run.lease = run.lease, None
        if lease is not None:
            await write_or_log_despite_cancellation(self._store.release(lease, refusals=refusals, not_resumable=reason))

    async def withdraw(self, run_id: str, reason: str) -> None:
        """Withdraw a run that waits for a decision, unless it has ended or another process has it."""
        try:
            await self._store.withdraw(
                _to_record_id(run_id), actor="", reason=reason[:_MAX_REASON_CHARACTERS], tenant=self._tenant
            )
        except StoreError:
            return
        except StoreUnavailableError:
            _log.warning("a run that waits for a person could not be withdrawn", exc_info=True)

    async def mark_expired_records(self) -> None:
        """Mark expired records in the store, for processes that watch its changes."""
        try:
            await self._store.sweep()
        except StoreUnavailableError:
            _log.warning("expired records could not be marked", exc_info=True)

    async def keep_lease_renewed_or_abort_run(self, run: ProgramRun) -> None:
        """Renew the lease of a run until it is released, or abort the run if another process has it."""
        while True:
            await asyncio.sleep(LEASE_MS / 3000)
            lease, execution = run.lease, run.execution
            if lease is None:
                return
            try:
                if await self._store.renew(lease):
                    continue
            except Exception:  # noqa: BLE001 - the database may be back before the lease expires
                _log.warning("the lease of a run could not be renewed", exc_info=True)
                continue
            if run.lease is lease:
                run.lease, run.is_lost = None, True
                if execution is not None:
                    await execution.abort("another process has the run")
                self.on_lost(run)
            return

    # --- for waits in other processes ---

    async def wait_to_claim_run_or_get_result(
        self, run_id: str, scope: str, waits_ms: int
    ) -> Lease | Mapping[str, Any] | Record:
        """Return a lease to continue a run, its result, or its record if it still waits.

        Raises `InvalidInputError` for a run of another scope or one that no longer exists.
        """
        record = await self._require_record(run_id, scope)
        deadline = monotonic_seconds() + waits_ms / 1000
        with self._store.watch() as watch:
            while True:
                try:
                    lease = await self._store.claim(
                        owner=self._owner, tenant=self._tenant, app=self._app, record_id=record.id, lease_ms=LEASE_MS
                    )
                except RecordExpiredError:
                    raise InvalidInputError(_EXPIRED_TEXT, SNAPSHOT_EXPIRED) from None
                except RecordLostError as error:
                    raise InvalidInputError(f"wait: {error.message}", SNAPSHOT_RESTORE_FAILED) from None
                except (RequestSettledError, RecordWithdrawnError):
                    return require_ended_result(await self._store.record(record.id, tenant=self._tenant))
                if lease is not None:
                    return await self._require_unexpired_or_settle(lease)
                current, remaining = (
                    await self._store.record(record.id, tenant=self._tenant),
                    deadline - monotonic_seconds(),
                )
                if remaining <= 0 or _is_undecided(current):
                    return current
                await watch.wait(min(_POLL_SECONDS, remaining))

    async def _require_record(self, run_id: str, scope: str) -> Record:
        if RUN_ID.fullmatch(run_id) is None:
            raise create_run_not_found_error(run_id)
        try:
            record = await self._store.record(_to_record_id(run_id), tenant=self._tenant)
        except UnknownRequestError:
            raise create_run_not_found_error(run_id) from None
        if record.app != self._app or get_scope(record) != scope:
            raise create_run_not_found_error(run_id)
        return record

    async def _require_unexpired_or_settle(self, lease: Lease) -> Lease:
        """Return a lease unless its run was suspended for too long."""
        expires_at_ms = mapping_or_empty(lease.record.payload).get(_EXPIRES_KEY)
        if lease.record.state != "resting" or type(expires_at_ms) is not int or expires_at_ms > now_ms():
            return lease
        await write_or_log_despite_cancellation(
            self._store.settle(lease, build_failed_result(_EXPIRED_TEXT, SNAPSHOT_EXPIRED, {}))
        )
        raise InvalidInputError(_EXPIRED_TEXT, SNAPSHOT_EXPIRED)

    async def record_answers_and_claim(
        self, interrupt: Interrupt, answers: Mapping[str, Any], scope: str
    ) -> Lease | None:
        """Record the host's answers and claim the record of the pause to resume it.

        Returns None if this scope has no such record or another process has it; invalid answers are reported when
        resuming. Raises `AlreadyDecidedError` for other answers than those in the store, and `RecordWithdrawnError` or
        `RecordExpiredError` if nothing is pending any more.
        """
        found = await self._store.get(interrupt.interrupt_id, tenant=self._tenant) if answers else None
        if found is not None and _get_nonce(found) != _get_nonce(interrupt):
            return None
        try:
            if found is None:  # nothing is written for a settled or unknown request
                await self._store.decide(answers, actor="", tenant=self._tenant)
                return None
            record_id = await self._store.put(interrupt, tenant=self._tenant, app=self._app, tool=self._tool)
            record = await self._store.record(record_id, tenant=self._tenant)
            if record.app != self._app or get_scope(record) != scope:
                return None
            await self._store.decide(answers, actor="", tenant=self._tenant)
        except UnknownRequestError:
            return None
        except RequestSettledError as error:
            await self._raise_if_ended_from_outside(string_or_empty(error.details.get("record_id")))
            return None
        return await self._store.claim(
            owner=self._owner, tenant=self._tenant, app=self._app, record_id=record_id, lease_ms=LEASE_MS
        )

    async def _raise_if_ended_from_outside(self, record_id: str) -> None:
        """Raise `RecordWithdrawnError` for a run that was ended from outside."""
        record = await self._store.record(record_id, tenant=self._tenant)
        outcome_fields = mapping_or_empty(None if record.outcome is None else record.outcome.value)
        if record.state == "withdrawn" or outcome_fields.get("code") in (ABORTED, SNAPSHOT_EXPIRED):
            raise RecordWithdrawnError("this run was ended: answers cannot resume it")

    async def load_newest_interrupt(self, record: Record) -> Interrupt | None:
        """Return the newest interrupt of a record, or None if nothing was asked."""
        interrupt_ids = record.versions[-1].interrupt_ids if record.versions else ()
        return None if not interrupt_ids else await self._store.get(interrupt_ids[0], tenant=record.tenant)

    def _build_record_fields(self, run: ProgramRun) -> dict[str, Any]:
        source = None if self._is_sealed else run.code
        return {"tenant": self._tenant, "app": self._app, "tool": self._tool, "source": source}

    def _build_payload(self, scope: str) -> dict[str, Any]:
        return {_SURFACE_KEY: PROFILE_NAME, _SCOPE_KEY: scope, _EXPIRES_KEY: now_ms() + self._ttl_ms}


def _ignore_lost_run(_run: ProgramRun) -> None:
    """Do nothing; the default of ``on_lost``."""


def _get_nonce(interrupt: Interrupt) -> Any:
    return mapping_or_empty(interrupt.continuation.get("auth")).get("nonce")


def _to_record_id(run_id: str) -> str:
    return run_id.removeprefix(RUN_PREFIX)


def _is_undecided(record: Record) -> bool:
    """Return True if no request of a record is decided, so that a model need not wait for it."""
    return record.state == "pending" and all(request.state != "decided" for request in record.requests)


def to_run_id(record_id: str) -> str:
    """Return the run id of a record."""
    return f"{RUN_PREFIX}{record_id}"


def get_scope(record: Record) -> str | None:
    """Return the scope of a record, or None for a record of another surface."""
    payload = mapping_or_empty(record.payload)
    scope = payload.get(_SCOPE_KEY)
    return scope if payload.get(_SURFACE_KEY) == PROFILE_NAME and isinstance(scope, str) else None


def require_ended_result(record: Record) -> Mapping[str, Any]:
    """Return the result of an ended run, or raise `InvalidInputError` without one."""
    outcome = record.outcome
    if record.state == "expired":
        raise InvalidInputError(_EXPIRED_TEXT, SNAPSHOT_EXPIRED)
    if record.state == "withdrawn":
        raise InvalidInputError("wait: this run was ended", ABORTED)
    value = None if outcome is None else outcome.value
    if is_mapping(value) and "status" in value:
        return value
    error_text = "" if outcome is None or outcome.error is None else f": {outcome.error}"
    raise InvalidInputError(f"wait: this run has failed{error_text}", INTERNAL_ERROR)
