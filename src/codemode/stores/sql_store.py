"""A store over an SQL database: each operation is one transaction in a thread."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Self, TypeVar

from ..continuations.guard import MemoryResumeGuard, ResumeGuard
from ..continuations.keys import warn_if_own
from ..continuations.sql_guard import SqlResumeGuard
from ..errors import Resumable
from ..host.cancellation import to_its_end
from ..host.job_threads import in_own_thread
from ..host.threads import LARGE_CHARACTERS, run_check
from ..interrupts.interrupt import Interrupt
from ..options.checked_fields import WrongTypeError
from . import journal, leases, queries, record_decisions, record_writes, terminal_states
from .answers import Answer, decision_texts, read, require_decisions, shown
from .audit import AuditLine, noted
from .errors import StoreUnavailable
from .journal import SqlJournal
from .outbox import Notifying
from .record_decisions import Answering
from .record_writes import require_name, require_text, said_by
from .records import (
    ALL_TENANTS,
    LEASE_MS,
    Change,
    LastResumed,
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
from .rows import given_back, interrupt_of, lost, tenants_of
from .transaction import Database, Session

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
            queries.require_sequence(after)
        tenants_of(tenant)
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        which = queries.Lines(tenant, record_id, newest_first)
        while limit is None or limit > 0:
            found = await self._read(
                lambda session, after=after, limit=limit: queries.lines(session, which, after, limit)
            )
            for line in found:
                yield line
            if not found:
                return
            after, limit = found[-1].sequence, None if limit is None else limit - len(found)

    async def audit_head(self) -> str:
        """See `InterruptStore.audit_head`."""
        return await self._read(queries.audit_head)

    @abstractmethod
    async def _read(self, work: Callable[[Session], ResultT]) -> ResultT: ...

    @abstractmethod
    async def _write(self, work: Callable[[Session], ResultT]) -> ResultT: ...


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
            new = await in_own_thread(lambda: record_writes.again(kept, payload=payload), "codemode-store")
            return await self._write(lambda session: terminal_states.rest(session, lease, new))
        whose = record_writes.require_text(owner, "owner")
        record_writes.require_lease(lease_ms)
        new = await in_own_thread(
            lambda: record_writes.kept(kept, tool, tenant, app, labels, source, payload), "codemode-store"
        )
        return await self._write_claim(
            lambda session: terminal_states.begin(session, new, whose, lease_ms, self._most_open)
        )

    async def last_resumed(self, *, tenant: str, app: str) -> LastResumed | None:
        """See `InterruptStore.last_resumed`."""
        return await self._read(lambda session: queries.last_resumed(session, tenant, app))

    async def _take(self, record_id: str, owner: str, tenant: Tenant, lease_ms: int) -> Lease | None:
        # As in `claim`: while there is nothing to do nobody is kept from writing.
        if not await self._read(lambda session: terminal_states.is_free(session, record_id, tenant)):
            return None
        return await self._write_claim(
            lambda session: terminal_states.take(session, record_id, owner, tenant, lease_ms)
        )

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
        by = record_writes.said_by(actor, reason=reason, address=address)
        lost = await self._read(lambda session: terminal_states.lost_interrupt(session, record_id, tenant))
        if lost is not None:
            paused = await run_check(LARGE_CHARACTERS, lambda: interrupt_of(lost))
            await self._guard.release(record_writes.nonce_of(paused))
        await self._write(lambda session: terminal_states.run_again(session, record_id, by, tenant))

    @abstractmethod
    async def _read(self, work: Callable[[Session], ResultT]) -> ResultT: ...

    @abstractmethod
    async def _write(self, work: Callable[[Session], ResultT]) -> ResultT: ...

    @abstractmethod
    async def _write_claim(self, work: Callable[[Session], Lease | None]) -> Lease | None: ...


_log = logging.getLogger("codemode.stores")
_SOON_MS = 3_600_000


class ExpiryWarning:
    """Says it once for each store."""

    def __init__(self) -> None:
        self._has_warned = False

    def look(self, left_ms: int) -> None:
        """Warn when there is less than an hour left."""
        if left_ms >= _SOON_MS or self._has_warned:
            return
        self._has_warned = True
        _log.warning(
            "a pause that expires in %d minutes was put into a store: continuation={'max_age_ms': ...} of the tool's"
            " options says how long its answer may take, and the default is meant for dialogs",
            max(0, left_ms // 60_000),
        )


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
        guard.content_store = journal.SqlContent(database, "", "")
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
            lambda: record_writes.kept(Interrupt.of(interrupt), tool, tenant, app, labels, source, payload),
            "codemode-store",
        )

        if self._database.sees_other_processes:
            warn_if_own(new.text, new.payload)

        def work(session: Session) -> str:
            self._warning.look(new.expires_at_ms - session.now_ms)
            if self._keeps_ended_ms is not None:
                terminal_states.purge(session, self._keeps_ended_ms)
                journal.purge_journals(session, self._keeps_ended_ms)
                journal.purge_content(session)
            return record_writes.put(session, new, alone, self._most_open)

        return await self._write(work)

    async def get(self, interrupt_id: str, *, tenant: Tenant) -> Interrupt | None:
        """See `InterruptStore.get`."""
        text = await self._read(lambda session: queries.interrupt(session, interrupt_id, tenant))
        return None if text is None else await run_check(LARGE_CHARACTERS, lambda: interrupt_of(text))

    async def last_interrupt(self, record_id: str, *, tenant: Tenant) -> Interrupt | None:
        """Return the newest interrupt of a record, to show what its program has done, also once it has ended.

        None where an older version has ended it. Raises `UnknownRequest`.
        """
        text = await self._read(lambda session: queries.last_interrupt(session, record_id, tenant))
        return None if text is None else await run_check(LARGE_CHARACTERS, lambda: interrupt_of(text))

    async def record(self, record_id: str, *, tenant: Tenant) -> Record:
        """See `InterruptStore.record`."""
        return await self._read(lambda session: queries.record(session, record_id, tenant))

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
        asked = queries.filters_of(
            tenant, app=app, tool=tool, state=state, labels=labels, order=order, after=after, limit=limit
        )
        return await self._read(lambda session: queries.page(session, asked))

    def has_surely_none_open(self, *, tenant: str, app: str, labels: Mapping[str, str]) -> bool:
        """Tell, on the event loop, that no record of any of these labels waits, rests or goes on: False says nothing.

        Looks only where nobody has to wait for that, and never at what a record holds.
        """
        try:
            found = self._database.look_at_once(lambda session: queries.has_open(session, tenant, app, labels))
        except StoreUnavailable:  # whoever asks the usual way is told
            return False
        return found is False

    async def records(self, record_ids: Iterable[str], *, tenant: Tenants) -> tuple[Record, ...]:
        """See `InterruptStore.records`."""
        ids, tenants = [*record_ids], tenants_of(tenant)
        if len(ids) > queries.MOST_LISTED:
            raise ValueError(f"record_ids must be at most {queries.MOST_LISTED}, got {len(ids)}")
        return await self._read(lambda session: queries.named(session, ids, tenants))

    async def count_open(self, *, tenant: str, app: str, most: int) -> int:
        """Return how many records of a tenant and app have not ended, counted up to ``most``."""
        return await self._read(lambda session: record_writes.open_records(session, tenant, app, most))

    async def counts(self, *, tenant: Tenants, app: str | None = None) -> dict[str, int]:
        """See `InterruptStore.counts`."""
        tenants = tenants_of(tenant)
        return await self._read(lambda session: queries.counts(session, tenants, app))

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
        by = record_writes.said_by(actor, address=address)
        while True:
            answers = await self._checked(decisions, tenant)
            try:
                return await self._write(
                    lambda session, answers=answers: record_decisions.decide(session, answers, by, tenant, seen or {})
                )
            except record_decisions.NotChecked:
                continue

    async def _checked(self, decisions: Mapping[str, Any], tenant: Tenant) -> dict[str, Answer]:
        """Check answers before there is a transaction in which everybody else would wait for that."""
        if len(require_decisions(decisions)) > record_decisions.MOST_DECIDED:
            raise ValueError(
                f"at most {record_decisions.MOST_DECIDED} requests are decided at a time, got {len(decisions)}"
            )
        texts = await run_check(LARGE_CHARACTERS, lambda: decision_texts(decisions))
        found, _ = await self._read(lambda session: record_decisions.named(session, list(decisions), tenant))
        waiting = [one.request for one in found.values() if one.request.state == "waiting"]
        return await run_check(LARGE_CHARACTERS, lambda: read(waiting, decisions, texts))

    async def outcome(self, record_id: str, *, tenant: Tenant, timeout_ms: float | None = None) -> Any:
        """See `InterruptStore.outcome`."""
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        with self._database.watch() as watch:
            while True:
                state, text, unfit = await self._read(lambda session: queries.outcome(session, record_id, tenant))
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
        record_writes.require_lease(lease_ms)
        if record_id is not None:
            return await self._take(record_id, owner, tenant, lease_ms)
        # Looked for first: while there is nothing to do nobody is kept from writing.
        if await self._read(lambda session: leases.candidate(session, tenant, app)) is None:
            return None

        def work(session: Session) -> Lease | None:
            record_id = leases.candidate(session, tenant, app)
            return None if record_id is None else leases.claim(session, record_id, owner, lease_ms)

        return await self._write_claim(work)

    async def renew(self, lease: Lease) -> bool:
        """See `InterruptStore.renew`."""
        return await self._write(lambda session: leases.renew(session, lease))

    async def settle(self, lease: Lease, result: Any, *, tool: Any = None) -> bool:
        """See `InterruptStore.settle`."""
        written = await in_own_thread(lambda: leases.result_of(result, tool), "codemode-store")
        return await self._write(lambda session: leases.settle(session, lease, written))

    async def release(
        self,
        lease: Lease,
        *,
        refusals: Mapping[str, str] | None = None,
        delay_ms: int = 0,
        not_resumable: str | None = None,
    ) -> bool:
        """See `InterruptStore.release`."""
        back = leases.Back(refusals or {}, delay_ms, not_resumable)
        return await self._write(lambda session: leases.release(session, lease, back))

    async def lose(self, lease: Lease) -> bool:
        """See `InterruptStore.lose`."""
        return await self._write(lambda session: leases.lose(session, lease))

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
        by = record_writes.said_by(actor, reason=reason, address=address)
        await self._write(lambda session: terminal_states.end_by(session, record_id, "withdraw", by, tenant))

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
        by = record_writes.said_by(actor, reason=reason, address=address)
        await self._write(lambda session: terminal_states.end_by(session, record_id, "close", by, tenant))

    async def sweep(self, *, deny_before_expiry_ms: int | None = None) -> int:
        """See `InterruptStore.sweep`."""
        return await self._in_parts(lambda session: terminal_states.sweep(session, deny_before_expiry_ms))

    async def purge(self, older_than: timedelta) -> int:
        """See `InterruptStore.purge`."""
        if not isinstance(older_than, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongTypeError(f"older_than must be a timedelta, got {older_than!r}")
        older_than_ms = int(older_than.total_seconds() * 1000)
        while await in_own_thread(lambda: self._purge_journals(older_than_ms), "codemode-store"):
            pass
        return await self._in_parts(lambda session: terminal_states.purge_by_hand(session, older_than_ms))

    def _purge_journals(self, older_than_ms: int) -> int:
        with self._database.journaling() as session:
            return journal.purge_journals(session, older_than_ms) + journal.purge_content(session)

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
        queries.require_sequence(after)
        with self._database.watch() as watch:
            while True:
                found = await self._read(lambda session, after=after: queries.changes(session, tenant, after))
                for change in found:
                    yield change
                    after = change.sequence
                if not found and not follow:
                    return
                if not found:
                    await watch.wait(_LOOK_SECONDS)

    async def changes_head(self) -> int:
        """See `InterruptStore.changes_head`."""
        return await self._read(queries.changes_head)

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
