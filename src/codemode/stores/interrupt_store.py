"""Stores of interrupts: what each does, over an SQL database. Each operation is one transaction in a thread."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Self, TypeVar

from ..continuations.guard import MemoryResumeGuard, ResumeGuard
from ..continuations.journal import Journal
from ..continuations.keys import warn_if_random_key
from ..continuations.sql_guard import SqlResumeGuard
from ..errors import Resumable
from ..host.cancellation import shield_to_end
from ..host.job_threads import run_in_own_thread
from ..host.threads import LARGE_CHARACTERS, run_check
from ..interrupts.interrupt import Interrupt
from ..options.checked_fields import WrongTypeError
from . import journal, leases, outbox, queries, record_decisions, record_writes, terminal_states
from .answers import Answer, display_digest
from .audit import AuditLine, validate_note
from .change_notifier import Watch
from .errors import RequestSupersededError, StoreUnavailableError
from .outbox import Outbox
from .records import (
    ALL_TENANTS,
    LEASE_MS,
    Change,
    FailedNotice,
    LastResumed,
    Lease,
    ListedState,
    ListOrder,
    Page,
    Record,
    StoredRequest,
    Tenant,
    Tenants,
)
from .resume_outcome import (
    call_resume,
    finish_writing,
    get_tool,
    may_have_started,
    not_resumable_reason,
    outcome_error,
    refusal_reason,
    renewing_lease,
    takes_record,
)
from .rows import decode_interrupt, lost_record_error, tenant_names, unwrap_outcome
from .saved_programs import SavedProgramRows
from .transaction import Database, Session, run_read, run_write

ResultT = TypeVar("ResultT")
_POLL_SECONDS = 0.5


class InterruptStore(ABC):
    """Keeps pauses, the decisions about them and what they come to, for whoever shares the store.

    Open it with ``async with``, or let it open when it is first needed. Each method is one transaction. Raises
    `StoreUnavailableError` when the database cannot be used; then nothing has changed.
    """

    # A class that derives from it says which database; `tests/unit/stores` holds what is expected of each.
    @abstractmethod
    def __init__(
        self,
        database: Database,
        guard: MemoryResumeGuard | SqlResumeGuard,
        *,
        keeps_ended_ms: int | None = None,
        max_open_per_tenant: int | None = None,
    ) -> None:
        self._database = database
        self._guard = guard
        guard.content_store = journal.SqlContent(database, "", "")
        self._keeps_ended_ms = keeps_ended_ms
        self._max_open = record_writes.require_max_open(max_open_per_tenant)
        self._expiry_warning = record_writes.ExpiryWarning()

    async def __aenter__(self) -> Self:
        await self._read(lambda _: None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def guard(self) -> ResumeGuard:
        """The guard on the same database, for ``continuation={"guard": store.guard}``."""
        return self._guard

    @property
    def programs(self) -> SavedProgramRows:
        """The rows of saved programs, for a `ProgramLibrary`."""
        return SavedProgramRows(self._database)

    def journal(self, *, tenant: str, app: str, lease_ms: int = LEASE_MS) -> Journal:
        """Return the journal of a tenant's app, for ``continuation={"journal": ...}``."""
        return journal.SqlJournal(self._database, tenant, app, lease_ms)

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
        """Keep an interrupt, or an error's recovery, and return the id of its record.

        The same interrupt again gives the same record; another pause of the same invocation is the record's next
        version. ``tool`` is the tool that paused, whose tools' schemas, descriptions and annotations are kept for
        forms; or its name. ``payload`` is plain JSON of your own, at most 16 MiB. ``alone`` is one of the ``labels``:
        where a record of this tenant and app with the same text of it has not ended, nothing new is kept and its id is
        returned, whichever host was first. Raises `ValueError`.
        """
        if alone is not None and alone not in (labels or {}):
            raise ValueError(f"alone must be one of the labels, got {alone!r}")
        new = await run_in_own_thread(
            lambda: record_writes.encode_pause(Interrupt.of(interrupt), tool, tenant, app, labels, source, payload),
            "codemode-store",
        )

        if self._database.sees_other_processes:
            warn_if_random_key(new.interrupt_json, new.payload)

        def work(session: Session) -> str:
            self._expiry_warning.look(new.expires_at_ms - session.now_ms)
            if self._keeps_ended_ms is not None:
                terminal_states.purge_records(session, self._keeps_ended_ms)
                journal.purge_journals(session, self._keeps_ended_ms)
                journal.purge_content(session)
            return record_writes.put_pause(session, new, alone, self._max_open)

        return await self._write(work)

    async def get(self, interrupt_id: str, *, tenant: Tenant) -> Interrupt | None:
        """Return the newest interrupt in which this request is pending."""
        text = await self._read(lambda session: queries.find_interrupt(session, interrupt_id, tenant))
        return None if text is None else await run_check(LARGE_CHARACTERS, lambda: decode_interrupt(text))

    async def last_interrupt(self, record_id: str, *, tenant: Tenant) -> Interrupt | None:
        """Return the newest interrupt of a record, to show what its program has done, also once it has ended.

        None where an older version has ended it. Raises `UnknownRequestError`.
        """
        text = await self._read(lambda session: queries.find_last_interrupt(session, record_id, tenant))
        return None if text is None else await run_check(LARGE_CHARACTERS, lambda: decode_interrupt(text))

    async def record(self, record_id: str, *, tenant: Tenant) -> Record:
        """Return a record. Raises `UnknownRequestError`."""
        return await self._read(lambda session: queries.find_record(session, record_id, tenant))

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
        """Return records; ``tool`` is one that waits, ``labels`` are had with these texts, ``after`` a page's ``next``.

        ``state`` "waiting" is all about which a person may decide. Those that rest are listed only where ``state`` says
        so. ``order`` "expiring" has the soonest to expire first, of what waits alone. A record that is there all the
        while is on one page alone, whatever comes and goes meanwhile. Raises `ValueError`, also for an ``after`` of
        another order.
        """
        filters = queries.create_filter(
            tenant, app=app, tool=tool, state=state, labels=labels, order=order, after=after, limit=limit
        )
        return await self._read(lambda session: queries.list_page(session, filters))

    async def records(self, record_ids: Iterable[str], *, tenant: Tenants) -> tuple[Record, ...]:
        """Return those of these records, at most 500, that there are, in this order and as `list` gives them."""
        ids, tenants = [*record_ids], tenant_names(tenant)
        if len(ids) > queries.MAX_LISTED_RECORDS:
            raise ValueError(f"record_ids must be at most {queries.MAX_LISTED_RECORDS}, got {len(ids)}")
        return await self._read(lambda session: queries.find_records(session, ids, tenants))

    async def counts(self, *, tenant: Tenants, app: str | None = None) -> dict[str, int]:
        """Return how many requests wait for a person, by tool: the most first, of at most 100 tools."""
        tenants = tenant_names(tenant)
        return await self._read(lambda session: queries.count_waiting(session, tenants, app))

    async def count_open(self, *, tenant: str, app: str, most: int) -> int:
        """Return how many records of a tenant and app have not ended, counted up to ``most``."""
        return await self._read(lambda session: record_writes.count_open_records(session, tenant, app, most))

    def can_rule_out_open_records(self, *, tenant: str, app: str, labels: Mapping[str, str]) -> bool:
        """Tell, on the event loop, that no record of any of these labels waits, rests or goes on: False says nothing.

        Looks only where nobody has to wait for that, and never at what a record holds.
        """
        try:
            has_open = self._database.read_nowait(lambda session: queries.has_open_record(session, tenant, app, labels))
        except StoreUnavailableError:  # whoever asks the usual way is told
            return False
        return has_open is False

    def shown(self, request: Any) -> str:
        """Return the digest of what a person was shown: of a `StoredRequest` or a `PendingRequest`."""
        return display_digest(request)

    async def decide(
        self,
        decisions: Mapping[str, Any],
        *,
        actor: str,
        tenant: Tenant,
        seen: Mapping[str, str] | None = None,
        address: str | None = None,
    ) -> dict[str, StoredRequest]:
        """Record decisions by request id, all or none; nothing runs. ``seen`` has the digests of what was shown.

        At most 1,000 at a time. ``actor`` and ``address``, texts of at most 1,000 characters, are kept in the audit.
        The same decision again returns the first one. Raises `AlreadyDecidedError`, `AnswerRefusedError`,
        `UnknownRequestError`, `RecordExpiredError`, `RequestSettledError`, `RequestSupersededError`.
        """
        by = record_writes.create_attribution(actor, address=address)
        while True:
            answers = await self._check_decisions(decisions, tenant)
            try:
                return await self._write(
                    lambda session, answers=answers: record_decisions.decide(session, answers, by, tenant, seen or {})
                )
            except record_decisions.UncheckedAnswerError:
                continue

    async def _check_decisions(self, decisions: Mapping[str, Any], tenant: Tenant) -> dict[str, Answer]:
        return await record_decisions.check_decisions(self._database, decisions, tenant)

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
        """Decide, claim and run in one. Returns what ``resume(interrupt, resolutions=...)`` returns, which is kept.

        Whoever answers another request of the same record meanwhile waits for its turn. Where nothing was run the
        request waits again.
        """
        by = record_writes.create_attribution(actor, address=address)
        owner = leases.create_owner_name()
        with self._database.watch() as watch:
            while True:
                answers = await self._check_decisions({interrupt_id: resolution}, tenant)
                lease = await self._write_claim(
                    lambda session, answers=answers: record_decisions.decide_and_claim(
                        session, answers, by, tenant, owner
                    ),
                    {interrupt_id: "whoever answered was cancelled"},
                )
                if lease is None:
                    await watch.wait(_POLL_SECONDS)
                    continue
                if isinstance(lease, RequestSupersededError):
                    raise lease
                result = await self._run_resume(lease, resume, interrupt_id)
                if interrupt_id in lease.resolutions:
                    return result

    async def _run_resume(self, lease: Lease, resume: Callable[..., Awaitable[Any]], interrupt_id: str) -> Any:
        try:
            async with renewing_lease(self.renew, lease):
                paused = lease.record if takes_record(resume) else lease.interrupt
                result = await call_resume(resume, paused, lease.resolutions)
        except (Exception, asyncio.CancelledError) as error:
            outcome = outcome_error(error)
            if outcome is not None:
                # What was begun waits in the recovery; else the program has come to its end.
                await finish_writing(self.settle(lease, outcome, tool=get_tool(resume)))
            elif not may_have_started(error):
                reason = refusal_reason(error) or "the program could not go on"
                not_resumable = not_resumable_reason(error)
                await finish_writing(self.release(lease, refusals={interrupt_id: reason}, not_resumable=not_resumable))
            raise
        await finish_writing(self.settle(lease, result, tool=get_tool(resume)))
        return result

    async def outcome(self, record_id: str, *, tenant: Tenant, timeout_ms: float | None = None) -> Any:
        """Wait for a record's end, in whatever process. Returns its value, or raises the error it ended with.

        Raises `RecordExpiredError`, `RecordWithdrawnError`, `RecordLostError`; or `TimeoutError`, and nothing changes.
        """
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        with self._database.watch() as watch:
            while True:
                state, text, not_resumable = await self._read(
                    lambda session: queries.find_outcome(session, record_id, tenant)
                )
                if text is not None:
                    return await run_check(LARGE_CHARACTERS, lambda text=text: unwrap_outcome(text))
                if state == "lost":
                    raise lost_record_error()
                remaining_seconds = _POLL_SECONDS if deadline is None else deadline - time.monotonic()
                if remaining_seconds <= 0:
                    why = (
                        ""
                        if not_resumable is None
                        else f"; the last host that was to resume it could not: {not_resumable}"
                    )
                    raise TimeoutError(f"record {record_id!r} is {state} still{why}")
                await watch.wait(min(remaining_seconds, _POLL_SECONDS))

    async def claim(
        self,
        *,
        owner: str,
        tenant: Tenant,
        app: str | None = None,
        record_id: str | None = None,
        lease_ms: int = LEASE_MS,
    ) -> Lease | None:
        """Take a record that can go on, for as long as the lease says; None when there is none.

        ``record_id`` asks for that record alone, which may rest: None while it waits for a person, or for its owner's
        lease to be over. Raises then `UnknownRequestError`, and `RequestSettledError`, `RecordExpiredError` or
        `RecordLostError` for one that goes on no more.
        """
        record_writes.require_lease(lease_ms)
        if record_id is not None:
            return await self._claim_by_id(record_id, owner, tenant, lease_ms)
        # Looked for first: while there is nothing to do nobody is kept from writing.
        if await self._read(lambda session: leases.find_claimable(session, tenant, app)) is None:
            return None

        def work(session: Session) -> Lease | None:
            record_id = leases.find_claimable(session, tenant, app)
            return None if record_id is None else leases.claim(session, record_id, owner, lease_ms)

        return await self._write_claim(work)

    async def _claim_by_id(self, record_id: str, owner: str, tenant: Tenant, lease_ms: int) -> Lease | None:
        # As in `claim`: while there is nothing to do nobody is kept from writing.
        if not await self._read(lambda session: terminal_states.is_claimable(session, record_id, tenant)):
            return None
        return await self._write_claim(
            lambda session: terminal_states.claim_by_id(session, record_id, owner, tenant, lease_ms)
        )

    async def _write_claim(
        self, work: Callable[[Session], ResultT], refusals: Mapping[str, str] | None = None
    ) -> ResultT:
        attempt = asyncio.ensure_future(self._write(work))
        try:
            return await shield_to_end(attempt)
        except asyncio.CancelledError:
            # The thread went on, and what it claimed would be nobody's until the lease is over.
            lease = None if attempt.cancelled() or attempt.exception() is not None else attempt.result()
            if isinstance(lease, Lease):
                await self.release(lease, refusals=refusals)
            raise

    async def last_resumed(self, *, tenant: str, app: str) -> LastResumed | None:
        """Return who has last claimed a record of a tenant's app, for whoever wants to know where they go on.

        A claim that was released with ``not_resumable`` does not count.
        """
        return await self._read(lambda session: queries.find_last_resumed(session, tenant, app))

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
        """Keep a program that goes on by itself, and hold it: from ``interrupt`` others go on should its owner die.

        With ``owner`` it is a new record, whose state is ``resting``; all else is as `put` has it, but that nobody is
        asked what waits in the interrupt. With ``lease``, of this record or of one that is being resumed, it is the
        next rest of it: what it goes on from is replaced, and the payload where there is another. The lease begins
        anew; None when it is somebody else's by now, and then nothing is written.

        Renew the lease as any other; `settle` it with what the program comes to, an interrupt where it comes to ask
        somebody; `release` lets others have it at once. Once the lease is over, `claim` with its ``record_id`` takes it
        over. No `Resumer` does.
        """
        if (owner is None) == (lease is None):
            raise ValueError("rest takes an owner for a new record, or the lease of one that there is")
        paused = Interrupt.of(interrupt)
        if lease is not None:
            new = await run_in_own_thread(
                lambda: record_writes.encode_next_pause(paused, payload=payload), "codemode-store"
            )
            return await self._write(lambda session: terminal_states.update_suspended(session, lease, new))
        owner_name = record_writes.require_text(owner, "owner")
        record_writes.require_lease(lease_ms)
        new = await run_in_own_thread(
            lambda: record_writes.encode_pause(paused, tool, tenant, app, labels, source, payload), "codemode-store"
        )
        return await self._write_claim(
            lambda session: terminal_states.create_suspended(session, new, owner_name, lease_ms, self._max_open)
        )

    async def renew(self, lease: Lease) -> bool:
        """Let a lease begin anew. False when it is somebody else's by now."""
        return await self._write(lambda session: leases.renew(session, lease))

    async def settle(self, lease: Lease, result: Any, *, tool: Any = None) -> bool:
        """Write what a claimed record has come to: a value, an interrupt, or an error, whose recovery is a pause.

        The pause that was resumed itself says that nothing was run, and gives the record back. ``tool`` is as `put` has
        it, for the forms of what is asked now. False when the lease is somebody else's by now; then nothing is written.
        """
        encoded = await run_in_own_thread(lambda: leases.encode_result(result, tool), "codemode-store")
        return await self._write(lambda session: leases.settle(session, lease, encoded))

    async def release(
        self,
        lease: Lease,
        *,
        refusals: Mapping[str, str] | None = None,
        delay_ms: int = 0,
        not_resumable: str | None = None,
    ) -> bool:
        """Give a claimed record back: nothing was run. ``refusals`` says of answers why they wait again.

        Those of a takeover stay together and are given to whoever claims it next: the one before may have begun.
        ``not_resumable`` says why it cannot be resumed there. Its answers stay; it is left alone for 5 seconds, twice
        as long each time, at most ten minutes.
        """
        options = leases.ReleaseOptions(refusals or {}, delay_ms, not_resumable)
        return await self._write(lambda session: leases.release(session, lease, options))

    async def lose(self, lease: Lease) -> bool:
        """Say that nobody can tell what became of a claimed record."""
        return await self._write(lambda session: leases.lose(session, lease))

    async def withdraw(
        self, record_id: str, *, actor: str, reason: str = "", tenant: Tenant = ALL_TENANTS, address: str | None = None
    ) -> None:
        """End a record that waits."""
        by = record_writes.create_attribution(actor, reason=reason, address=address)
        await self._write(lambda session: terminal_states.end_by_decision(session, record_id, "withdraw", by, tenant))

    async def close_lost(
        self, record_id: str, *, actor: str, reason: str = "", tenant: Tenant = ALL_TENANTS, address: str | None = None
    ) -> None:
        """End a record that is lost."""
        by = record_writes.create_attribution(actor, reason=reason, address=address)
        await self._write(lambda session: terminal_states.end_by_decision(session, record_id, "close", by, tenant))

    async def run_again(
        self, record_id: str, *, actor: str, reason: str = "", tenant: Tenant = ALL_TENANTS, address: str | None = None
    ) -> None:
        """Let a record that is lost go on from its last pause, with the answers that it was given.

        What its host had begun when it died may run twice then: nobody knows of it, and what the guard knows of the
        one that died is forgotten. A record that no host could resume is tried again at once. Raises
        `UnknownRequestError`, `RecordExpiredError` for one whose continuation holds no more, `StoreError` for one that
        is neither.
        """
        by = record_writes.create_attribution(actor, reason=reason, address=address)
        text = await self._read(lambda session: terminal_states.find_lost_interrupt(session, record_id, tenant))
        if text is not None:
            paused = await run_check(LARGE_CHARACTERS, lambda: decode_interrupt(text))
            await self._guard.release(record_writes.continuation_nonce(paused))
        await self._write(lambda session: terminal_states.run_again(session, record_id, by, tenant))

    async def sweep(self, *, deny_before_expiry_ms: int | None = None) -> int:
        """Mark what has expired, and return how much was marked.

        ``deny_before_expiry_ms``: approvals of which nobody has decided so long before are denied by ``system``.
        """
        return await self._write_in_batches(lambda session: terminal_states.sweep(session, deny_before_expiry_ms))

    async def purge(self, older_than: timedelta) -> int:
        """Delete the records that ended longer ago than this, and return how many. Lines of the audit stay.

        And the journals that nobody has and nobody has changed for so long: ended, paused or given up. What images,
        audio and files these alone have held goes with them.
        """
        if not isinstance(older_than, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongTypeError(f"older_than must be a timedelta, got {older_than!r}")
        older_than_ms = int(older_than.total_seconds() * 1000)
        while await run_in_own_thread(
            lambda: journal.purge_journals_and_content(self._database, older_than_ms), "codemode-store"
        ):
            pass
        return await self._write_in_batches(lambda session: terminal_states.purge_and_audit(session, older_than_ms))

    async def _write_in_batches(self, work: Callable[[Session], int]) -> int:
        total = 0
        while part := await self._write(work):
            total += part
        return total

    async def changes(self, *, tenant: Tenant, after: int = 0, follow: bool = True) -> AsyncGenerator[Change]:
        """Give all changes behind a sequence, and with ``follow`` then each as it comes. Nothing is left out."""
        queries.require_sequence(after)
        with self._database.watch() as watch:
            while True:
                batch = await self._read(lambda session, after=after: queries.list_changes(session, tenant, after))
                for change in batch:
                    yield change
                    after = change.sequence
                if not batch and not follow:
                    return
                if not batch:
                    await watch.wait(_POLL_SECONDS)

    async def changes_head(self) -> int:
        """Return the sequence of the last change: what is read from here on has it."""
        return await self._read(queries.last_change_sequence)

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
        """Write a line of your own into the audit: that somebody signed in, was refused, took a copy.

        ``kind`` is a text of at most 100 characters, none of the store's own kinds; ``details`` plain JSON of at most
        16 KiB; a line of `ALL_TENANTS` belongs to no tenant. By ``record_id``, at most 1,000 characters of a record or
        of whatever else it is about, `audit` finds it. Raises `ValueError`, `CodeModeSerializationError`.
        """
        by = record_writes.create_attribution(actor, address=address)
        audit_tenant = None if tenant is ALL_TENANTS else record_writes.require_text(tenant, "tenant")
        audit_record_id = None if record_id is None else record_writes.require_name(record_id, "record_id")
        checked_details = await run_check(LARGE_CHARACTERS, lambda: validate_note(kind, details or {}))
        line: dict[str, Any] = {"actor": by.actor, "address": by.address, "details": checked_details}
        await self._write(lambda session: session.add_audit_line(kind, audit_tenant, audit_record_id, **line))

    async def audit(
        self,
        *,
        tenant: Tenants,
        after: int | None = None,
        record_id: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> AsyncGenerator[AuditLine]:
        """Give the lines of the audit there are, in their order or the newest first, and end.

        ``after`` is the sequence of the last line that was seen, ``limit`` how many are given at most.
        """
        if after is not None:
            queries.require_sequence(after)
        tenant_names(tenant)
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        filters = queries.AuditFilter(tenant, record_id, newest_first)
        while limit is None or limit > 0:
            lines = await self._read(
                lambda session, after=after, limit=limit: queries.list_audit_lines(session, filters, after, limit)
            )
            for line in lines:
                yield line
            if not lines:
                return
            after, limit = lines[-1].sequence, None if limit is None else limit - len(lines)

    async def audit_head(self) -> str:
        """Return how many lines there are and the hash of the last, as one text.

        Kept where nobody can reach it from the database, it shows in `verify_audit` what happened to lines until then.
        """
        return await self._read(queries.get_audit_head)

    def outbox(self, target: str) -> Outbox:
        """Return the notices for a target of this name, to be sent. Those of all tenants. Raises `ValueError`."""
        return Outbox(self._database, target)

    async def failed_notices(self, record_ids: Iterable[str], *, tenant: Tenant) -> tuple[FailedNotice, ...]:
        """Return the notices of these records, at most 500, that were given up."""
        return await outbox.failed_notices(self._database, record_ids, tenant)

    def watch(self) -> AbstractContextManager[Watch]:
        """Return what wakes one that waits for something to do; it may wake for nothing."""
        return self._database.watch()

    async def aclose(self) -> None:
        """Close what is open. A store that is used again opens again."""
        await run_in_own_thread(self._database.close, "codemode-store")

    async def _read(self, work: Callable[[Session], ResultT]) -> ResultT:
        return await run_read(self._database, work)

    async def _write(self, work: Callable[[Session], ResultT]) -> ResultT:
        return await run_write(self._database, work)
