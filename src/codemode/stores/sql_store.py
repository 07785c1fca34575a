"""A store over a database: each operation is one transaction, in a thread of its own. Knows no dialect."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Self, TypeVar

from ..continuations.guard import MemoryResumeGuard, ResumeGuard
from ..continuations.key_warnings import warn_if_own
from ..continuations.sql_guard import SqlResumeGuard
from ..errors import Resumable
from ..host.cancellation import to_its_end
from ..host.own_thread import in_own_thread
from ..host.threads import LARGE_CHARACTERS, run_check
from ..interrupts.interrupt import Interrupt
from ..options.checked_fields import WrongTypeError
from . import content, deciding, ending, finding, journal, keeping, leasing, listing
from .answering import Answering
from .answers import Answer, decision_texts, read, require_decisions, shown
from .auditing import Auditing
from .errors import StoreUnavailable
from .holding import Holding
from .journal import SqlJournal
from .outbox import Notifying
from .outcomes import given_back, lost
from .rows import interrupt_of, tenants_of
from .session import Database, Session
from .values import (
    ALL_TENANTS,
    LEASE_MS,
    Change,
    Lease,
    ListedState,
    ListOrder,
    Page,
    Record,
    StoredRequest,
    Tenant,
    Tenants,
    Watch,
)
from .warned import ExpiryWarning

ResultT = TypeVar("ResultT")
_Guard = MemoryResumeGuard | SqlResumeGuard
_LOOK_SECONDS = 0.5


def require_limit(max_open_per_tenant: int | None) -> int | None:
    """Return how many open records a tenant may have, None for any number. Raises `ValueError`."""
    if max_open_per_tenant is None:
        return None
    if type(max_open_per_tenant) is not int or max_open_per_tenant < 1:
        raise ValueError(f"max_open_per_tenant must be an integer of at least 1, or None, got {max_open_per_tenant!r}")
    return max_open_per_tenant


class SqlStore(Answering, Auditing, Holding, Notifying):
    """What `InterruptStore` promises, over whatever driver it is given."""

    def __init__(
        self,
        database: Database,
        guard: _Guard,
        *,
        keeps_ended_ms: int | None = None,
        max_open_per_tenant: int | None = None,
    ) -> None:
        self._database = database
        self._guard = guard
        guard.content_store = content.SqlContent(database, "", "")
        self._keeps_ended_ms = keeps_ended_ms
        self._most_open = require_limit(max_open_per_tenant)
        self._warning = ExpiryWarning()

    async def __aenter__(self) -> Self:
        await self._read(lambda _: None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def guard(self) -> ResumeGuard:
        """The guard on the same database, for ``continuation={"guard": store.guard}``."""
        return self._guard

    async def put(
        self,
        interrupt: Resumable,
        *,
        tool: Any = None,
        tenant: str = "",
        app: str = "",
        labels: Mapping[str, str] | None = None,
        source: str | None = None,
        payload: Any = None,
        alone: str | None = None,
    ) -> str:
        """See `InterruptStore.put`."""
        if alone is not None and alone not in (labels or {}):
            raise ValueError(f"alone must be one of the labels, got {alone!r}")
        new = await in_own_thread(
            lambda: keeping.kept(Interrupt.of(interrupt), tool, tenant, app, labels, source, payload), "codemode-store"
        )

        if self._database.sees_other_processes:
            warn_if_own(new.text, new.payload)

        def work(session: Session) -> str:
            self._warning.look(new.expires_at_ms - session.now_ms)
            if self._keeps_ended_ms is not None:
                ending.purge(session, self._keeps_ended_ms)
                journal.purge(session, self._keeps_ended_ms)
                content.purge(session)
            return keeping.put(session, new, alone, self._most_open)

        return await self._write(work)

    async def get(self, interrupt_id: str, *, tenant: Tenant) -> Interrupt | None:
        """See `InterruptStore.get`."""
        text = await self._read(lambda session: finding.interrupt(session, interrupt_id, tenant))
        return None if text is None else await run_check(LARGE_CHARACTERS, lambda: interrupt_of(text))

    async def last_interrupt(self, record_id: str, *, tenant: Tenant) -> Interrupt | None:
        """Return the newest interrupt of a record, to show what its program has done, also once it has ended.

        None where an older version has ended it. Raises `UnknownRequest`.
        """
        text = await self._read(lambda session: finding.last_interrupt(session, record_id, tenant))
        return None if text is None else await run_check(LARGE_CHARACTERS, lambda: interrupt_of(text))

    async def record(self, record_id: str, *, tenant: Tenant) -> Record:
        """See `InterruptStore.record`."""
        return await self._read(lambda session: finding.record(session, record_id, tenant))

    async def list(
        self,
        *,
        tenant: Tenants,
        app: str | None = None,
        tool: str | None = None,
        state: ListedState | None = None,
        labels: Mapping[str, str] | None = None,
        order: ListOrder = "newest",
        after: str | None = None,
        limit: int = 50,
    ) -> Page:
        """See `InterruptStore.list`."""
        asked = listing.filters_of(
            tenant, app=app, tool=tool, state=state, labels=labels, order=order, after=after, limit=limit
        )
        return await self._read(lambda session: listing.page(session, asked))

    def has_surely_none_open(self, *, tenant: str, app: str, labels: Mapping[str, str]) -> bool:
        """Tell, on the event loop, that no record of any of these labels waits, rests or goes on: False says nothing.

        Looks only where nobody has to wait for that, and never at what a record holds.
        """
        try:
            found = self._database.look_at_once(lambda session: listing.has_open(session, tenant, app, labels))
        except StoreUnavailable:  # whoever asks the usual way is told
            return False
        return found is False

    async def records(self, record_ids: Iterable[str], *, tenant: Tenants) -> tuple[Record, ...]:
        """See `InterruptStore.records`."""
        ids, tenants = [*record_ids], tenants_of(tenant)
        if len(ids) > listing.MOST_LISTED:
            raise ValueError(f"record_ids must be at most {listing.MOST_LISTED}, got {len(ids)}")
        return await self._read(lambda session: listing.named(session, ids, tenants))

    async def count_open(self, *, tenant: str, app: str, most: int) -> int:
        """Return how many records of a tenant and app have not ended, counted up to ``most``."""
        return await self._read(lambda session: keeping.open_records(session, tenant, app, most))

    async def counts(self, *, tenant: Tenants, app: str | None = None) -> dict[str, int]:
        """See `InterruptStore.counts`."""
        tenants = tenants_of(tenant)
        return await self._read(lambda session: listing.counts(session, tenants, app))

    def shown(self, request: Any) -> str:
        """See `InterruptStore.shown`."""
        return shown(request)

    async def decide(
        self,
        decisions: Mapping[str, Any],
        *,
        actor: str,
        tenant: Tenant,
        seen: Mapping[str, str] | None = None,
        address: str | None = None,
    ) -> dict[str, StoredRequest]:
        """See `InterruptStore.decide`."""
        by = keeping.said_by(actor, address=address)
        while True:
            answers = await self._checked(decisions, tenant)
            try:
                return await self._write(
                    lambda session, answers=answers: deciding.decide(session, answers, by, tenant, seen or {})
                )
            except deciding.NotChecked:
                continue

    async def _checked(self, decisions: Mapping[str, Any], tenant: Tenant) -> dict[str, Answer]:
        """Check answers before there is a transaction in which everybody else would wait for that."""
        if len(require_decisions(decisions)) > deciding.MOST_DECIDED:
            raise ValueError(f"at most {deciding.MOST_DECIDED} requests are decided at a time, got {len(decisions)}")
        texts = await run_check(LARGE_CHARACTERS, lambda: decision_texts(decisions))
        found, _ = await self._read(lambda session: deciding.named(session, list(decisions), tenant))
        waiting = [one.request for one in found.values() if one.request.state == "waiting"]
        return await run_check(LARGE_CHARACTERS, lambda: read(waiting, decisions, texts))

    async def outcome(self, record_id: str, *, tenant: Tenant, timeout_ms: float | None = None) -> Any:
        """See `InterruptStore.outcome`."""
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        with self._database.watch() as watch:
            while True:
                state, text, unfit = await self._read(lambda session: finding.outcome(session, record_id, tenant))
                if text is not None:
                    return await run_check(LARGE_CHARACTERS, lambda text=text: given_back(text))
                if state == "lost":
                    raise lost()
                left = _LOOK_SECONDS if until is None else until - time.monotonic()
                if left <= 0:
                    why = "" if unfit is None else f"; the last host that was to resume it could not: {unfit}"
                    raise TimeoutError(f"record {record_id!r} is {state} still{why}")
                await watch.wait(min(left, _LOOK_SECONDS))

    async def claim(
        self,
        *,
        owner: str,
        tenant: Tenant,
        app: str | None = None,
        record_id: str | None = None,
        lease_ms: int = LEASE_MS,
    ) -> Lease | None:
        """See `InterruptStore.claim`."""
        keeping.require_lease(lease_ms)
        if record_id is not None:
            return await self._take(record_id, owner, tenant, lease_ms)
        # Looked for first: while there is nothing to do nobody is kept from writing.
        if await self._read(lambda session: leasing.candidate(session, tenant, app)) is None:
            return None

        def work(session: Session) -> Lease | None:
            record_id = leasing.candidate(session, tenant, app)
            return None if record_id is None else leasing.claim(session, record_id, owner, lease_ms)

        return await self._write_claim(work)

    async def renew(self, lease: Lease) -> bool:
        """See `InterruptStore.renew`."""
        return await self._write(lambda session: leasing.renew(session, lease))

    async def settle(self, lease: Lease, result: Any, *, tool: Any = None) -> bool:
        """See `InterruptStore.settle`."""
        written = await in_own_thread(lambda: leasing.result_of(result, tool), "codemode-store")
        return await self._write(lambda session: leasing.settle(session, lease, written))

    async def release(
        self,
        lease: Lease,
        *,
        refusals: Mapping[str, str] | None = None,
        delay_ms: int = 0,
        not_resumable: str | None = None,
    ) -> bool:
        """See `InterruptStore.release`."""
        back = leasing.Back(refusals or {}, delay_ms, not_resumable)
        return await self._write(lambda session: leasing.release(session, lease, back))

    async def lose(self, lease: Lease) -> bool:
        """See `InterruptStore.lose`."""
        return await self._write(lambda session: leasing.lose(session, lease))

    async def withdraw(
        self,
        record_id: str,
        *,
        actor: str,
        reason: str = "",
        tenant: Tenant = ALL_TENANTS,
        address: str | None = None,
    ) -> None:
        """See `InterruptStore.withdraw`."""
        by = keeping.said_by(actor, reason=reason, address=address)
        await self._write(lambda session: ending.end_by(session, record_id, "withdraw", by, tenant))

    async def close_lost(
        self,
        record_id: str,
        *,
        actor: str,
        reason: str = "",
        tenant: Tenant = ALL_TENANTS,
        address: str | None = None,
    ) -> None:
        """See `InterruptStore.close_lost`."""
        by = keeping.said_by(actor, reason=reason, address=address)
        await self._write(lambda session: ending.end_by(session, record_id, "close", by, tenant))

    async def sweep(self, *, deny_before_expiry_ms: int | None = None) -> int:
        """See `InterruptStore.sweep`."""
        return await self._in_parts(lambda session: ending.sweep(session, deny_before_expiry_ms))

    async def purge(self, older_than: timedelta) -> int:
        """See `InterruptStore.purge`."""
        if not isinstance(older_than, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongTypeError(f"older_than must be a timedelta, got {older_than!r}")
        older_than_ms = int(older_than.total_seconds() * 1000)
        while await in_own_thread(lambda: self._purge_journals(older_than_ms), "codemode-store"):
            pass
        return await self._in_parts(lambda session: ending.purge_by_hand(session, older_than_ms))

    def _purge_journals(self, older_than_ms: int) -> int:
        with self._database.journaling() as session:
            return journal.purge(session, older_than_ms) + content.purge(session)

    def journal(self, *, tenant: str, app: str, lease_ms: int = LEASE_MS) -> SqlJournal:
        """See `InterruptStore.journal`."""
        return SqlJournal(self._database, tenant, app, lease_ms)

    async def _in_parts(self, work: Callable[[Session], int]) -> int:
        total = 0
        while part := await self._write(work):
            total += part
        return total

    async def changes(self, *, tenant: Tenant, after: int = 0, follow: bool = True) -> AsyncGenerator[Change]:
        """See `InterruptStore.changes`."""
        finding.require_sequence(after)
        with self._database.watch() as watch:
            while True:
                found = await self._read(lambda session, after=after: finding.changes(session, tenant, after))
                for change in found:
                    yield change
                    after = change.sequence
                if not found and not follow:
                    return
                if not found:
                    await watch.wait(_LOOK_SECONDS)

    async def changes_head(self) -> int:
        """See `InterruptStore.changes_head`."""
        return await self._read(finding.changes_head)

    def watch(self) -> AbstractContextManager[Watch]:
        """See `InterruptStore.watch`."""
        return self._database.watch()

    async def aclose(self) -> None:
        """See `InterruptStore.aclose`."""
        await in_own_thread(self._database.close, "codemode-store")

    async def _read(self, work: Callable[[Session], ResultT]) -> ResultT:
        return await in_own_thread(lambda: self._run(work, writes=False), "codemode-store")

    async def _write(self, work: Callable[[Session], ResultT]) -> ResultT:
        # Whoever is cancelled meanwhile has written it nevertheless, and knows.
        return await to_its_end(in_own_thread(lambda: self._run(work, writes=True), "codemode-store"))

    def _run(self, work: Callable[[Session], ResultT], *, writes: bool) -> ResultT:
        with self._database.transaction(writes=writes) as session:
            return work(session)
