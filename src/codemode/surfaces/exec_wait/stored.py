"""Runs in a store: kept at each rest and held by a lease, parked while a person is asked, taken over by their id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...data.narrowing import is_mapping, mapping_or_empty, string_or_empty
from ...execution.outcome_texts import ABORTED, INTERNAL_ERROR, SNAPSHOT_EXPIRED, SNAPSHOT_RESTORE_FAILED
from ...host.clock import now_ms, passed_seconds
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
from ...stores.leases import new_owner
from ...stores.records import LEASE_MS
from ...stores.resume_outcome import written
from .options import NAME
from .results import RUN_ID, RefusedInputError, failed, unknown_run
from .waiting_run import RUN_PREFIX, WaitingRun

if TYPE_CHECKING:
    from ...execution.outcome import RestingRun
    from ...stores.interrupt_store import InterruptStore
    from ...stores.records import Lease, Record

_log = logging.getLogger("codemode.tools")
_LOOK_SECONDS = 0.5
_MOST_SAID = 1_000
REASON = "reason"
"""Why a program rests, in the payload of its record."""
YIELDS = "yields"
"""How often a program at rest has yielded, in the payload of its record: from its journal it comes there again."""
_SURFACE, _SCOPE, _EXPIRES = "surface", "scope", "expiresAtMs"
_EXPIRED = "wait: this run has expired: nobody came back for it in time"


class StoredRuns:
    """What a pair keeps in a store. The id of a run that is kept is ``run_`` and the id of its record.

    The text of a program stands beside its continuation only where that can be read too.
    """

    def __init__(self, store: InterruptStore, tenant: str, app: str, ttl_seconds: int, tool: Any) -> None:
        self._store = store
        self._tenant = tenant
        self._app = app
        self._ttl_ms = ttl_seconds * 1000
        self._tool = tool
        self._is_sealed = bool(tool.settings.continuation.seal)
        self._owner = new_owner()
        self.on_lost: Callable[[WaitingRun], None] = _nobody

    async def rest(self, one: WaitingRun, run: RestingRun, reason: str, yields: int) -> bool:
        """Keep a run that has come to rest, and hold it. False: somebody else goes on with it by now.

        Raises `StoreUnavailableError`; then the run waits in this process alone.
        """
        kept, payload = await run.kept(), {**self._payload(one.scope), REASON: reason, YIELDS: yields}
        if one.lease is None:
            one.lease = await self._store.rest(
                kept, owner=self._owner, payload=payload, lease_ms=LEASE_MS, **self._new_record(one)
            )
            return True
        lease = await self._store.rest(kept, lease=one.lease, payload=payload)
        if lease is None:
            one.lease = None
            return False
        one.lease = lease
        return True

    async def parked(self, one: WaitingRun, interrupt: Interrupt) -> str | None:
        """Keep what a program asks a person, and return the id under which it goes on. Raises `StoreUnavailableError`.

        None: somebody else goes on with it by now.
        """
        if one.lease is not None:
            lease, one.lease = one.lease, None
            is_settled = await self._store.settle(lease, interrupt, tool=self._tool)
            return id_of(lease.record.id) if is_settled else None
        return id_of(await self._store.put(interrupt, payload=self._payload(one.scope), **self._new_record(one)))

    async def settle(self, one: WaitingRun, result: Any) -> None:
        """Write what a run has come to, for whoever waits for it elsewhere."""
        lease, one.lease = one.lease, None
        if lease is not None:
            await written(self._store.settle(lease, result, tool=self._tool))

    async def give_back(
        self, one: WaitingRun, why: str | None = None, refusals: Mapping[str, str] | None = None
    ) -> None:
        """Give a run back, for whoever goes on with it. ``why`` it cannot be resumed in this process.

        ``refusals`` say of answers why they wait again.
        """
        lease, one.lease = one.lease, None
        if lease is not None:
            await written(self._store.release(lease, refusals=refusals, not_resumable=why))

    async def withdraw(self, run_id: str, reason: str) -> None:
        """End a run that waits for a person, unless it has ended or somebody goes on with it."""
        try:
            await self._store.withdraw(_record_id(run_id), actor="", reason=reason[:_MOST_SAID], tenant=self._tenant)
        except StoreError:
            return
        except StoreUnavailableError:
            _log.warning("a run that waits for a person could not be withdrawn", exc_info=True)

    async def sweep(self) -> None:
        """Have the store mark what has expired, for whoever follows its changes."""
        try:
            await self._store.sweep()
        except StoreUnavailableError:
            _log.warning("what has expired could not be marked", exc_info=True)

    async def keep(self, one: WaitingRun) -> None:
        """Renew the lease of a run until it has none any more, or it is somebody else's: then its run ends here."""
        while True:
            await asyncio.sleep(LEASE_MS / 3000)
            lease, run = one.lease, one.run
            if lease is None:
                return
            try:
                if await self._store.renew(lease):
                    continue
            except Exception:  # noqa: BLE001 - the database may be back before the lease is over
                _log.warning("the lease of a run could not be renewed", exc_info=True)
                continue
            if one.lease is lease:
                one.lease, one.is_lost = None, True
                if run is not None:
                    await run.abort("another process goes on with it")
                self.on_lost(one)
            return

    # -- by whoever waits elsewhere

    async def take(self, run_id: str, scope: str, waits_ms: int) -> Lease | Mapping[str, Any] | Record:
        """Return a lease of the run to go on with, the result that it has come to, or the record of one that waits on.

        Raises `RefusedInputError` for a run that is not this scope's, or is no more.
        """
        record = await self._record(run_id, scope)
        until = passed_seconds() + waits_ms / 1000
        with self._store.watch() as watch:
            while True:
                try:
                    lease = await self._store.claim(
                        owner=self._owner, tenant=self._tenant, app=self._app, record_id=record.id, lease_ms=LEASE_MS
                    )
                except RecordExpiredError:
                    raise RefusedInputError(_EXPIRED, SNAPSHOT_EXPIRED) from None
                except RecordLostError as lost:
                    raise RefusedInputError(f"wait: {lost.message}", SNAPSHOT_RESTORE_FAILED) from None
                except (RequestSettledError, RecordWithdrawnError):
                    return ended(await self._store.record(record.id, tenant=self._tenant))
                if lease is not None:
                    return await self._in_time(lease)
                now, left = await self._store.record(record.id, tenant=self._tenant), until - passed_seconds()
                if left <= 0 or _waits_for_people(now):
                    return now
                await watch.wait(min(_LOOK_SECONDS, left))

    async def _record(self, run_id: str, scope: str) -> Record:
        if RUN_ID.fullmatch(run_id) is None:
            raise unknown_run(run_id)
        try:
            record = await self._store.record(_record_id(run_id), tenant=self._tenant)
        except UnknownRequestError:
            raise unknown_run(run_id) from None
        if record.app != self._app or scope_of(record) != scope:
            raise unknown_run(run_id)
        return record

    async def _in_time(self, lease: Lease) -> Lease:
        """Return a lease whose run may go on. One that rested for too long has expired, though nobody was there."""
        expires = mapping_or_empty(lease.record.payload).get(_EXPIRES)
        if lease.record.state != "resting" or type(expires) is not int or expires > now_ms():
            return lease
        await written(self._store.settle(lease, failed(_EXPIRED, SNAPSHOT_EXPIRED, {})))
        raise RefusedInputError(_EXPIRED, SNAPSHOT_EXPIRED)

    async def answered(self, interrupt: Interrupt, answers: Mapping[str, Any], scope: str) -> Lease | None:
        """Note what the host of a program answers itself, and take the record of its pause, to go on with it.

        None: there is no such record in this scope, or somebody else has it. What does not fit says whoever resumes.
        Raises `AlreadyDecidedError` where a person has answered otherwise, and `RecordWithdrawnError` or
        `RecordExpiredError` where nothing is asked any more.
        """
        found = await self._store.get(interrupt.interrupt_id, tenant=self._tenant) if answers else None
        if found is not None and _nonce(found) != _nonce(interrupt):
            return None
        try:
            if found is None:  # where this is asked no more, or was never kept, nothing is written
                await self._store.decide(answers, actor="", tenant=self._tenant)
                return None
            record_id = await self._store.put(interrupt, tenant=self._tenant, app=self._app, tool=self._tool)
            record = await self._store.record(record_id, tenant=self._tenant)
            if record.app != self._app or scope_of(record) != scope:
                return None
            await self._store.decide(answers, actor="", tenant=self._tenant)
        except UnknownRequestError:
            return None
        except RequestSettledError as settled:
            await self._refuse_ended(string_or_empty(settled.details.get("record_id")))
            return None
        return await self._store.claim(
            owner=self._owner, tenant=self._tenant, app=self._app, record_id=record_id, lease_ms=LEASE_MS
        )

    async def _refuse_ended(self, record_id: str) -> None:
        """Raise `RecordWithdrawnError` for a run that was ended from outside; another has the outcome it came to."""
        record = await self._store.record(record_id, tenant=self._tenant)
        came_to = mapping_or_empty(None if record.outcome is None else record.outcome.value)
        if record.state == "withdrawn" or came_to.get("code") in (ABORTED, SNAPSHOT_EXPIRED):
            raise RecordWithdrawnError("somebody has ended this run: no answer goes on with it")

    async def interrupt_of(self, record: Record) -> Interrupt | None:
        """Return the newest interrupt of a record; None for one in which nothing is asked."""
        asked = record.versions[-1].interrupt_ids if record.versions else ()
        return None if not asked else await self._store.get(asked[0], tenant=record.tenant)

    def _new_record(self, one: WaitingRun) -> dict[str, Any]:
        source = None if self._is_sealed else one.code
        return {"tenant": self._tenant, "app": self._app, "tool": self._tool, "source": source}

    def _payload(self, scope: str) -> dict[str, Any]:
        return {_SURFACE: NAME, _SCOPE: scope, _EXPIRES: now_ms() + self._ttl_ms}


def _nobody(_one: WaitingRun) -> None:
    """Stand in for whoever wants to hear of runs that are lost."""


def _nonce(interrupt: Interrupt) -> Any:
    return mapping_or_empty(interrupt.continuation.get("auth")).get("nonce")


def _record_id(run_id: str) -> str:
    return run_id.removeprefix(RUN_PREFIX)


def _waits_for_people(record: Record) -> bool:
    """Tell whether nothing of what a program asks was decided: waiting for that is no work of a model."""
    return record.state == "pending" and all(one.state != "decided" for one in record.requests)


def id_of(record_id: str) -> str:
    """Return the id of the run that is kept in this record."""
    return f"{RUN_PREFIX}{record_id}"


def scope_of(record: Record) -> str | None:
    """Return the scope of the run of a record; None for a record that is none of a pair's."""
    payload = mapping_or_empty(record.payload)
    scope = payload.get(_SCOPE)
    return scope if payload.get(_SURFACE) == NAME and isinstance(scope, str) else None


def ended(record: Record) -> Mapping[str, Any]:
    """Return the result that a run has come to elsewhere. Raises `RefusedInputError` where it has none."""
    outcome = record.outcome
    if record.state == "expired":
        raise RefusedInputError(_EXPIRED, SNAPSHOT_EXPIRED)
    if record.state == "withdrawn":
        raise RefusedInputError("wait: somebody has ended this run", ABORTED)
    value = None if outcome is None else outcome.value
    if is_mapping(value) and "status" in value:
        return value
    said = "" if outcome is None or outcome.error is None else f": {outcome.error}"
    raise RefusedInputError(f"wait: this run has failed{said}", INTERNAL_ERROR)
