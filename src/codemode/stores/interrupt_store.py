"""The operations of an interrupt store. Each is one database transaction in a thread."""

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
from ..continuations.keys import warn_once_if_signed_with_random_key
from ..continuations.sql_guard import SqlResumeGuard
from ..errors import Resumable
from ..host.cancellation import shield_until_done
from ..host.job_threads import run_in_dedicated_thread
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ..interrupts.interrupt import Interrupt
from ..options.checked_fields import WrongTypeError
from . import journal, leases, outbox, queries, record_decisions, record_writes, terminal_states
from .answers import EncodedAnswer, compute_display_digest
from .audit import AuditLine, validate_audit_kind_and_details
from .change_notifier import ChangeWatch
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
    get_bound_tool,
    get_not_resumable_reason,
    get_record_ending_error,
    get_refusal_reason,
    is_call_start_unknown,
    keep_lease_renewed,
    takes_record,
    write_or_log_despite_cancellation,
)
from .rows import create_lost_record_error, decode_interrupt, to_tenant_names, unwrap_outcome
from .saved_programs import SavedProgramTables
from .transaction import Database, Session, run_read_transaction, run_write_transaction

ResultT = TypeVar("ResultT")
_POLL_SECONDS = 0.5


class InterruptStore(ABC):
    """Store pauses, decisions about them and their outcomes for all processes that share the database.

    Use it as an async context manager, or it opens at the first call. Each method is one transaction. Raises
    `StoreUnavailableError` when the database cannot be used; nothing has changed then.
    """

    # A subclass chooses the database; tests/unit/stores runs the same contract tests for each.
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
        guard.content_store = journal.SqlContentStore(database, "", "")
        self._keeps_ended_ms = keeps_ended_ms
        self._max_open = record_writes.require_valid_max_open_records(max_open_per_tenant)
        self._expiry_warning = record_writes.ExpiryWarner()

    async def __aenter__(self) -> Self:
        await self._run_read(lambda _: None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def guard(self) -> ResumeGuard:
        """The resume guard on the same database, for ``continuation={"guard": store.guard}``."""
        return self._guard

    @property
    def programs(self) -> SavedProgramTables:
        """The rows of saved programs, for a `ProgramLibrary`."""
        return SavedProgramTables(self._database)

    def journal(self, *, tenant: str, app: str, lease_ms: int = LEASE_MS) -> Journal:
        """Return the journal of a tenant's app, for ``continuation={"journal": ...}``."""
        return journal.SqlJournalStore(self._database, tenant, app, lease_ms)

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
        """Store an interrupt, or the recovery of an error, and return the id of its record.

        The same interrupt again returns the same record; another pause of the same invocation becomes the record's next
        version. ``tool`` is the tool that paused, or its name; the schemas, descriptions and annotations of its tools
        are stored for approval forms. ``payload`` is plain JSON of the caller, at most 16 MiB. ``alone`` is one of the
        ``labels``: if a record of this tenant and app with the same label text has not ended, nothing is stored and its
        id is returned, whichever host created it. Raises `ValueError`.
        """
        if alone is not None and alone not in (labels or {}):
            raise ValueError(f"alone must be one of the labels, got {alone!r}")
        new = await run_in_dedicated_thread(
            lambda: record_writes.encode_pause(
                Interrupt.from_value(interrupt), tool, tenant, app, labels, source, payload
            ),
            "codemode-store",
        )

        if self._database.is_shared_between_processes:
            warn_once_if_signed_with_random_key(new.interrupt_json, new.payload)

        def purge_ended_and_put_pause(session: Session) -> str:
            self._expiry_warning.warn_once_if_short(new.expires_at_ms - session.now_ms)
            if self._keeps_ended_ms is not None:
                terminal_states.purge_ended_record_batch(session, self._keeps_ended_ms)
                journal.purge_old_journal_batch(session, self._keeps_ended_ms)
                journal.purge_expired_holds_and_unheld_content(session)
            return record_writes.put_pause_or_get_duplicate_id(session, new, alone, self._max_open)

        return await self._run_write(purge_ended_and_put_pause)

    async def get(self, interrupt_id: str, *, tenant: Tenant) -> Interrupt | None:
        """Return the newest interrupt in which this request is pending."""
        text = await self._run_read(
            lambda session: queries.find_interrupt_json_of_open_request(session, interrupt_id, tenant)
        )
        return (
            None
            if text is None
            else await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, lambda: decode_interrupt(text))
        )

    async def last_interrupt(self, record_id: str, *, tenant: Tenant) -> Interrupt | None:
        """Return the newest interrupt of a record, also after the record has ended, to show the calls of its program.

        None if an older version of codemode ended the record. Raises `UnknownRequestError`.
        """
        text = await self._run_read(lambda session: queries.get_last_interrupt_json(session, record_id, tenant))
        return (
            None
            if text is None
            else await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, lambda: decode_interrupt(text))
        )

    async def record(self, record_id: str, *, tenant: Tenant) -> Record:
        """Return a record. Raises `UnknownRequestError`."""
        return await self._run_read(lambda session: queries.get_record(session, record_id, tenant))

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
        """Return one page of records.

        ``tool`` is the name of a tool with a waiting request, ``labels`` must all match, ``after`` is ``next`` of the
        previous page. ``state`` "waiting" selects records with a request that a person can decide. Records of suspended
        programs are listed only for ``state="resting"``. ``order`` "expiring" lists waiting records, the soonest to
        expire first. A record that matches all the time is on exactly one page. Raises `ValueError`, also for an
        ``after`` of another order.
        """
        filters = queries.create_record_filter(
            tenant, app=app, tool=tool, state=state, labels=labels, order=order, after=after, limit=limit
        )
        return await self._run_read(lambda session: queries.list_record_page(session, filters))

    async def records(self, record_ids: Iterable[str], *, tenant: Tenants) -> tuple[Record, ...]:
        """Return the records with these ids that exist, at most 500, in this order and as `list` returns them."""
        ids, tenants = [*record_ids], to_tenant_names(tenant)
        if len(ids) > queries.MAX_LISTED_RECORDS:
            raise ValueError(f"record_ids must be at most {queries.MAX_LISTED_RECORDS}, got {len(ids)}")
        return await self._run_read(lambda session: queries.find_records_without_payload(session, ids, tenants))

    async def count_waiting_requests(self, *, tenant: Tenants, app: str | None = None) -> dict[str, int]:
        """Return the number of waiting requests by tool, for the 100 tools with the most, in descending order."""
        tenants = to_tenant_names(tenant)
        return await self._run_read(lambda session: queries.count_waiting_requests(session, tenants, app))

    async def count_open(self, *, tenant: str, app: str, most: int) -> int:
        """Return how many records of a tenant and app have not ended, counted up to ``most``."""
        return await self._run_read(lambda session: record_writes.count_open_records(session, tenant, app, most))

    def can_rule_out_open_records(self, *, tenant: str, app: str, labels: Mapping[str, str]) -> bool:
        """Return True if no record with any of these labels is open. False means unknown. Never blocks the event loop.

        Reads only the index of labels, and only where the database answers without waiting.
        """
        try:
            has_open = self._database.run_read_nowait(
                lambda session: queries.has_open_record_with_any_label(session, tenant, app, labels)
            )
        except StoreUnavailableError:  # the caller's next query reports it
            return False
        return has_open is False

    def compute_display_digest(self, request: Any) -> str:
        """Return the digest of what an approver saw of a `StoredRequest` or `PendingRequest`."""
        return compute_display_digest(request)

    async def decide(
        self,
        decisions: Mapping[str, Any],
        *,
        actor: str,
        tenant: Tenant,
        seen: Mapping[str, str] | None = None,
        address: str | None = None,
    ) -> dict[str, StoredRequest]:
        """Record decisions by request id, all or none, without running anything. ``seen`` maps ids to display digests.

        At most 1,000 at a time. ``actor`` and ``address``, strings of at most 1,000 characters, are stored in the
        audit. The same decision again returns the first one. Raises `AlreadyDecidedError`, `AnswerRefusedError`,
        `UnknownRequestError`, `RecordExpiredError`, `RequestSettledError`, `RequestSupersededError`.
        """
        by = record_writes.create_attribution(actor, address=address)
        while True:
            answers = await self._validate_and_encode_decisions(decisions, tenant)
            try:
                return await self._run_write(
                    lambda session, answers=answers: record_decisions.write_decisions(
                        session, answers, by, tenant, seen or {}
                    )
                )
            except record_decisions.UncheckedAnswerError:
                continue

    async def _validate_and_encode_decisions(
        self, decisions: Mapping[str, Any], tenant: Tenant
    ) -> dict[str, EncodedAnswer]:
        return await record_decisions.validate_and_encode_decisions(self._database, decisions, tenant)

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
        """Decide, claim and resume. Returns and stores the result of ``resume(interrupt, resolutions=...)``.

        Concurrent answers to other requests of the same record wait for their turn. If nothing ran, the request waits
        again.
        """
        by = record_writes.create_attribution(actor, address=address)
        owner = leases.create_owner_name()
        with self._database.watch() as watch:
            while True:
                answers = await self._validate_and_encode_decisions({interrupt_id: resolution}, tenant)
                lease = await self._run_claim_transaction(
                    lambda session, answers=answers: record_decisions.write_decision_and_claim_record(
                        session, answers, by, tenant, owner
                    ),
                    {interrupt_id: "the caller of answer() was cancelled"},
                )
                if lease is None:
                    await watch.wait(_POLL_SECONDS)
                    continue
                if isinstance(lease, RequestSupersededError):
                    raise lease
                result = await self._resume_and_settle_or_release(lease, resume, interrupt_id)
                if interrupt_id in lease.resolutions:
                    return result

    async def _resume_and_settle_or_release(
        self, lease: Lease, resume: Callable[..., Awaitable[Any]], interrupt_id: str
    ) -> Any:
        try:
            async with keep_lease_renewed(self.renew, lease):
                paused = lease.record if takes_record(resume) else lease.interrupt
                result = await call_resume(resume, paused, lease.resolutions)
        except (Exception, asyncio.CancelledError) as error:
            outcome = get_record_ending_error(error)
            if outcome is not None:
                # Started calls wait in the recovery; without one the program has ended.
                await write_or_log_despite_cancellation(self.settle(lease, outcome, tool=get_bound_tool(resume)))
            elif not is_call_start_unknown(error):
                reason = get_refusal_reason(error) or "the program could not be resumed"
                not_resumable = get_not_resumable_reason(error)
                await write_or_log_despite_cancellation(
                    self.release(lease, refusals={interrupt_id: reason}, not_resumable=not_resumable)
                )
            raise
        await write_or_log_despite_cancellation(self.settle(lease, result, tool=get_bound_tool(resume)))
        return result

    async def outcome(self, record_id: str, *, tenant: Tenant, timeout_ms: float | None = None) -> Any:
        """Wait until a record has ended in any process. Returns its value or raises its error.

        Raises `RecordExpiredError`, `RecordWithdrawnError`, `RecordLostError`; or `TimeoutError`, which changes
        nothing.
        """
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        with self._database.watch() as watch:
            while True:
                state, text, not_resumable = await self._run_read(
                    lambda session: queries.get_state_outcome_and_not_resumable_reason(session, record_id, tenant)
                )
                if text is not None:
                    return await run_in_thread_if_large_or_slow(
                        LARGE_CHARACTERS, lambda text=text: unwrap_outcome(text)
                    )
                if state == "lost":
                    raise create_lost_record_error()
                remaining_seconds = _POLL_SECONDS if deadline is None else deadline - time.monotonic()
                if remaining_seconds <= 0:
                    if not_resumable is not None:
                        reason = f"; the last host could not resume it: {not_resumable}"
                    else:
                        requests = (await self.record(record_id, tenant=tenant)).requests
                        refusal = next((request.refusal for request in requests if request.refusal), None)
                        reason = "" if refusal is None else f"; the last answer was refused: {refusal}"
                    raise TimeoutError(f"record {record_id!r} is still {state}{reason}")
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
        """Claim a resumable record for ``lease_ms``; None if no record is ready.

        ``record_id`` claims that record only, which may be resting: None while it waits for a person or is leased.
        Raises `UnknownRequestError`, and for a record that cannot be resumed any more `RequestSettledError`,
        `RecordExpiredError` or `RecordLostError`.
        """
        record_writes.require_lease_duration(lease_ms)
        if record_id is not None:
            return await self._claim_record_by_id(record_id, owner, tenant, lease_ms)
        # A read first: without work to do, no writer is blocked.
        if await self._run_read(lambda session: leases.find_claimable_record_id(session, tenant, app)) is None:
            return None

        def claim_ready_record(session: Session) -> Lease | None:
            record_id = leases.find_claimable_record_id(session, tenant, app)
            return (
                None
                if record_id is None
                else leases.claim_record_or_restore_requests(session, record_id, owner, lease_ms)
            )

        return await self._run_claim_transaction(claim_ready_record)

    async def _claim_record_by_id(self, record_id: str, owner: str, tenant: Tenant, lease_ms: int) -> Lease | None:
        # A read first, as in `claim`.
        if not await self._run_read(
            lambda session: terminal_states.is_record_claimable_or_raise(session, record_id, tenant)
        ):
            return None
        return await self._run_claim_transaction(
            lambda session: terminal_states.claim_record_if_claimable(session, record_id, owner, tenant, lease_ms)
        )

    async def _run_claim_transaction(
        self, work: Callable[[Session], ResultT], refusals: Mapping[str, str] | None = None
    ) -> ResultT:
        attempt = asyncio.ensure_future(self._run_write(work))
        try:
            return await shield_until_done(attempt)
        except asyncio.CancelledError:
            # The thread continued: release its lease now rather than when it expires.
            lease = None if attempt.cancelled() or attempt.exception() is not None else attempt.result()
            if isinstance(lease, Lease):
                await self.release(lease, refusals=refusals)
            raise

    async def last_resumed(self, *, tenant: str, app: str) -> LastResumed | None:
        """Return who last claimed a record of a tenant's app, so that a client can find the host that resumes.

        A claim that was released with ``not_resumable`` does not count.
        """
        return await self._run_read(lambda session: queries.find_last_resumed(session, tenant, app))

    async def put_suspended(
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
        """Store a suspended program, which continues by itself, and hold a lease on it.

        If its owner dies, another host can continue from ``interrupt``. With ``owner`` it becomes a new record in state
        ``resting``; the other arguments are those of `put`, but its requests are not offered for decisions. With
        ``lease``, of this record or of one that is being resumed, ``interrupt`` (and ``payload``, if given) replaces
        the stored one and the lease is renewed. Returns None, and writes nothing, if another owner has the lease.

        Renew the lease as any other; `settle` it with the program's outcome, or with an interrupt when the program asks
        a person; `release` makes it claimable at once. When the lease has expired, `claim` with ``record_id`` takes it
        over. A `Resumer` does not.
        """
        if (owner is None) == (lease is None):
            raise ValueError("rest takes either owner, for a new record, or the lease of an existing one")
        paused = Interrupt.from_value(interrupt)
        if lease is not None:
            new = await run_in_dedicated_thread(
                lambda: record_writes.encode_next_pause(paused, payload=payload), "codemode-store"
            )
            return await self._run_write(
                lambda session: terminal_states.update_suspended_record_and_renew(session, lease, new)
            )
        owner_name = record_writes.require_storable_text(owner, "owner")
        record_writes.require_lease_duration(lease_ms)
        new = await run_in_dedicated_thread(
            lambda: record_writes.encode_pause(paused, tool, tenant, app, labels, source, payload), "codemode-store"
        )
        return await self._run_claim_transaction(
            lambda session: terminal_states.create_suspended_record_with_lease(
                session, new, owner_name, lease_ms, self._max_open
            )
        )

    async def renew(self, lease: Lease) -> bool:
        """Extend a lease by its full duration. False if another owner has it."""
        return await self._run_write(lambda session: leases.renew_lease(session, lease))

    async def settle(self, lease: Lease, result: Any, *, tool: Any = None) -> bool:
        """Record the outcome of a claimed record: a value, an interrupt, or an error, whose recovery is a pause.

        The very pause that was resumed means that nothing ran, and releases the record. ``tool`` is that of `put`, for
        the forms of new requests. False, and nothing is written, if another owner has the lease.
        """
        encoded = await run_in_dedicated_thread(lambda: leases.encode_result(result, tool), "codemode-store")
        return await self._run_write(lambda session: leases.write_result_or_release_record(session, lease, encoded))

    async def release(
        self,
        lease: Lease,
        *,
        refusals: Mapping[str, str] | None = None,
        delay_ms: int = 0,
        not_resumable: str | None = None,
    ) -> bool:
        """Release a claimed record of which nothing ran. ``refusals`` maps request ids to why they wait again.

        The answers of a takeover stay together for the next claim, as the previous owner may have started.
        ``not_resumable`` says why this host cannot resume the record: its answers stay, and it is not offered for 5
        seconds, doubled each time, at most ten minutes.
        """
        options = leases.ReleaseOptions(refusals or {}, delay_ms, not_resumable)
        return await self._run_write(lambda session: leases.release_record(session, lease, options))

    async def mark_lost(self, lease: Lease) -> bool:
        """Mark a claimed record as lost: its outcome is unknown."""
        return await self._run_write(lambda session: leases.mark_lost_if_owned(session, lease))

    async def withdraw(
        self, record_id: str, *, actor: str, reason: str = "", tenant: Tenant = ALL_TENANTS, address: str | None = None
    ) -> None:
        """End a waiting record."""
        by = record_writes.create_attribution(actor, reason=reason, address=address)
        await self._run_write(
            lambda session: terminal_states.withdraw_or_close_record(session, record_id, "withdraw", by, tenant)
        )

    async def close_lost(
        self, record_id: str, *, actor: str, reason: str = "", tenant: Tenant = ALL_TENANTS, address: str | None = None
    ) -> None:
        """End a lost record."""
        by = record_writes.create_attribution(actor, reason=reason, address=address)
        await self._run_write(
            lambda session: terminal_states.withdraw_or_close_record(session, record_id, "close", by, tenant)
        )

    async def run_again(
        self, record_id: str, *, actor: str, reason: str = "", tenant: Tenant = ALL_TENANTS, address: str | None = None
    ) -> None:
        """Resume a lost record from its last pause, with the answers that it has.

        Calls that its host had started may run twice: their outcome is unknown, and the guard's claim of the dead host
        is deleted. A record that no host could resume is tried again at once. Raises `UnknownRequestError`,
        `RecordExpiredError` if its continuation has expired, `StoreError` for a record in another state.
        """
        by = record_writes.create_attribution(actor, reason=reason, address=address)
        text = await self._run_read(
            lambda session: terminal_states.get_interrupt_json_if_record_lost(session, record_id, tenant)
        )
        if text is not None:
            paused = await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, lambda: decode_interrupt(text))
            await self._guard.release(record_writes.get_continuation_nonce(paused))
        await self._run_write(lambda session: terminal_states.make_record_claimable(session, record_id, by, tenant))

    async def sweep(self, *, deny_before_expiry_ms: int | None = None) -> int:
        """Mark expired records, and return how many were marked.

        ``deny_before_expiry_ms``: ``system`` denies approvals that are undecided this long before they expire.
        """
        return await self._write_in_batches(
            lambda session: terminal_states.end_expired_and_deny_expiring_records(session, deny_before_expiry_ms)
        )

    async def purge(self, older_than: timedelta) -> int:
        """Delete records that ended before ``older_than``, and return how many. Audit lines stay.

        Deletes journals that are not held and unchanged for as long, and the images, audio and files that only these
        held.
        """
        if not isinstance(older_than, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongTypeError(f"older_than must be a timedelta, got {older_than!r}")
        older_than_ms = int(older_than.total_seconds() * 1000)
        while await run_in_dedicated_thread(
            lambda: journal.purge_old_journals_and_expired_content(self._database, older_than_ms), "codemode-store"
        ):
            pass
        return await self._write_in_batches(
            lambda session: terminal_states.purge_ended_record_batch_and_audit(session, older_than_ms)
        )

    async def _write_in_batches(self, work: Callable[[Session], int]) -> int:
        total = 0
        while part := await self._run_write(work):
            total += part
        return total

    async def changes(self, *, tenant: Tenant, after: int = 0, follow: bool = True) -> AsyncGenerator[Change]:
        """Yield all changes after a sequence number, and with ``follow`` new ones as they happen."""
        queries.require_sequence_number(after)
        with self._database.watch() as watch:
            while True:
                batch = await self._run_read(lambda session, after=after: queries.list_changes(session, tenant, after))
                for change in batch:
                    yield change
                    after = change.sequence
                if not batch and not follow:
                    return
                if not batch:
                    await watch.wait(_POLL_SECONDS)

    async def changes_head(self) -> int:
        """Return the sequence number of the last change."""
        return await self._run_read(queries.get_last_change_sequence)

    async def add_audit_line(
        self,
        kind: str,
        *,
        actor: str,
        tenant: Tenant,
        address: str | None = None,
        details: Mapping[str, Any] | None = None,
        record_id: str | None = None,
    ) -> None:
        """Append a line of the host's own to the audit, for example a sign-in or an export.

        ``kind`` is a string of at most 100 characters other than the store's own kinds; ``details`` is plain JSON of at
        most 16 KiB; a line of `ALL_TENANTS` belongs to no tenant. `audit` finds it by ``record_id``, a string of at
        most 1,000 characters. Raises `ValueError`, `CodeModeSerializationError`.
        """
        by = record_writes.create_attribution(actor, address=address)
        audit_tenant = None if tenant is ALL_TENANTS else record_writes.require_storable_text(tenant, "tenant")
        audit_record_id = (
            None if record_id is None else record_writes.require_short_storable_text(record_id, "record_id")
        )
        checked_details = await run_in_thread_if_large_or_slow(
            LARGE_CHARACTERS, lambda: validate_audit_kind_and_details(kind, details or {})
        )
        line: dict[str, Any] = {"actor": by.actor, "address": by.address, "details": checked_details}
        await self._run_write(lambda session: session.add_audit_line(kind, audit_tenant, audit_record_id, **line))

    async def audit(
        self,
        *,
        tenant: Tenants,
        after: int | None = None,
        record_id: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> AsyncGenerator[AuditLine]:
        """Yield the audit lines, in their order or the newest first.

        ``after`` is the sequence number of the last line seen, ``limit`` the maximum number of lines.
        """
        if after is not None:
            queries.require_sequence_number(after)
        to_tenant_names(tenant)
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        filters = queries.AuditFilter(tenant, record_id, newest_first)
        while limit is None or limit > 0:
            lines = await self._run_read(
                lambda session, after=after, limit=limit: queries.list_audit_lines(session, filters, after, limit)
            )
            for line in lines:
                yield line
            if not lines:
                return
            after, limit = lines[-1].sequence, None if limit is None else limit - len(lines)

    async def audit_head(self) -> str:
        """Return the number of audit lines and the hash of the last, as one string.

        Stored where the database's writers cannot reach it, it lets `verify_audit` detect changes to earlier lines.
        """
        return await self._run_read(queries.get_audit_head)

    def outbox(self, target: str) -> Outbox:
        """Return the outbox of notices for a target, for all tenants. Raises `ValueError`."""
        return Outbox(self._database, target)

    async def failed_notices(self, record_ids: Iterable[str], *, tenant: Tenant) -> tuple[FailedNotice, ...]:
        """Return the failed notices of at most 500 records."""
        return await outbox.list_failed_notices(self._database, record_ids, tenant)

    def watch(self) -> AbstractContextManager[ChangeWatch]:
        """Return a context manager whose `ChangeWatch` wakes on changes; it may wake without one."""
        return self._database.watch()

    async def aclose(self) -> None:
        """Close the database. The next call opens it again."""
        await run_in_dedicated_thread(self._database.close, "codemode-store")

    async def _run_read(self, work: Callable[[Session], ResultT]) -> ResultT:
        return await run_read_transaction(self._database, work)

    async def _run_write(self, work: Callable[[Session], ResultT]) -> ResultT:
        return await run_write_transaction(self._database, work)
