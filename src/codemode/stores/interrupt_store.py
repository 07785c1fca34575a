"""What every store of interrupts does, and the verification of its audit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Literal, Protocol

from ..continuations.guard import ResumeGuard
from ..continuations.journal import Journal
from ..data.records import record
from ..errors import Resumable
from ..host.job_threads import in_own_thread
from ..interrupts.interrupt import Interrupt
from .audit import BEGINNING, AuditLine, hash_of, head_of
from .records import (
    ALL_TENANTS,
    LEASE_MS,
    Change,
    FailedNotice,
    LastResumed,
    Lease,
    ListedState,
    ListOrder,
    Outbox,
    Page,
    Record,
    StoredRequest,
    Tenant,
    Tenants,
    Watch,
)

# A store of your own fulfils `InterruptStore`; `tests/unit/stores` holds what is expected of it.


class InterruptStore(Protocol):
    """Keeps pauses, the decisions about them and what they come to, for whoever shares the store.

    Open it with ``async with``, or let it open when it is first needed. Each method is one transaction. Raises
    `StoreUnavailable` when the database cannot be used; then nothing has changed.
    """

    @property
    def guard(self) -> ResumeGuard:
        """The guard on the same database, for ``continuation={"guard": store.guard}``."""
        ...

    def journal(self, *, tenant: str, app: str, lease_ms: int = LEASE_MS) -> Journal:
        """Return the journal of a tenant's app, for ``continuation={"journal": ...}``."""
        ...

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
        ...

    async def get(self, interrupt_id: str, *, tenant: Tenant) -> Interrupt | None:
        """Return the newest interrupt in which this request is pending."""
        ...

    async def record(self, record_id: str, *, tenant: Tenant) -> Record:
        """Return a record. Raises `UnknownRequest`."""
        ...

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
        ...

    async def records(self, record_ids: Iterable[str], *, tenant: Tenants) -> tuple[Record, ...]:
        """Return those of these records, at most 500, that there are, in this order and as `list` gives them."""
        ...

    async def counts(self, *, tenant: Tenants, app: str | None = None) -> dict[str, int]:
        """Return how many requests wait for a person, by tool: the most first, of at most 100 tools."""
        ...

    def shown(self, request: Any) -> str:
        """Return the digest of what a person was shown: of a `StoredRequest` or a `PendingRequest`."""
        ...

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
        The same decision again returns the first one. Raises `AlreadyDecided`, `AnswerRefused`, `UnknownRequest`,
        `RecordExpired`, `RequestSettled`, `RequestSuperseded`.
        """
        ...

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
        ...

    async def outcome(self, record_id: str, *, tenant: Tenant, timeout_ms: float | None = None) -> Any:
        """Wait for a record's end, in whatever process. Returns its value, or raises the error it ended with.

        Raises `RecordExpired`, `RecordWithdrawn`, `RecordLost`, and `TimeoutError`, which changes nothing.
        """
        ...

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
        lease to be over. Raises then `UnknownRequest`, and `RequestSettled`, `RecordExpired` or `RecordLost` for one
        that goes on no more.
        """
        ...

    async def last_resumed(self, *, tenant: str, app: str) -> LastResumed | None:
        """Return who has last claimed a record of a tenant's app, for whoever wants to know where they go on.

        A claim that was released with ``not_resumable`` does not count.
        """
        ...

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
        ...

    async def renew(self, lease: Lease) -> bool:
        """Let a lease begin anew. False when it is somebody else's by now."""
        ...

    async def settle(self, lease: Lease, result: Any, *, tool: Any = None) -> bool:
        """Write what a claimed record has come to: a value, an interrupt, or an error, whose recovery is a pause.

        The pause that was resumed itself says that nothing was run, and gives the record back. ``tool`` is as `put` has
        it, for the forms of what is asked now. False when the lease is somebody else's by now; then nothing is written.
        """
        ...

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
        ...

    async def lose(self, lease: Lease) -> bool:
        """Say that nobody can tell what became of a claimed record."""
        ...

    async def withdraw(
        self, record_id: str, *, actor: str, reason: str = "", tenant: Tenant = ALL_TENANTS, address: str | None = None
    ) -> None:
        """End a record that waits."""
        ...

    async def close_lost(
        self, record_id: str, *, actor: str, reason: str = "", tenant: Tenant = ALL_TENANTS, address: str | None = None
    ) -> None:
        """End a record that is lost."""
        ...

    async def run_again(
        self, record_id: str, *, actor: str, reason: str = "", tenant: Tenant = ALL_TENANTS, address: str | None = None
    ) -> None:
        """Let a record that is lost go on from its last pause, with the answers that it was given.

        What its host had begun when it died may run twice then: nobody knows of it, and what the guard knows of the
        one that died is forgotten. A record that no host could resume is tried again at once. Raises `UnknownRequest`,
        `RecordExpired` for one whose continuation holds no more, `StoreError` for one that is neither.
        """
        ...

    async def sweep(self, *, deny_before_expiry_ms: int | None = None) -> int:
        """Mark what has expired, and return how much was marked.

        ``deny_before_expiry_ms``: approvals of which nobody has decided so long before are denied by ``system``.
        """
        ...

    async def purge(self, older_than: timedelta) -> int:
        """Delete the records that ended longer ago than this, and return how many. Lines of the audit stay.

        And the journals that nobody has and nobody has changed for so long: ended, paused or given up. What images,
        audio and files these alone have held goes with them.
        """
        ...

    def changes(self, *, tenant: Tenant, after: int = 0, follow: bool = True) -> AsyncIterator[Change]:
        """Give all changes behind a sequence, and with ``follow`` then each as it comes. Nothing is left out."""
        ...

    async def changes_head(self) -> int:
        """Return the sequence of the last change: what is read from here on has it."""
        ...

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
        ...

    def audit(
        self,
        *,
        tenant: Tenants,
        after: int | None = None,
        record_id: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> AsyncIterator[AuditLine]:
        """Give the lines of the audit there are, in their order or the newest first, and end.

        ``after`` is the sequence of the last line that was seen, ``limit`` how many are given at most.
        """
        ...

    async def audit_head(self) -> str:
        """Return how many lines there are and the hash of the last, as one text.

        Kept where nobody can reach it from the database, it shows in `verify_audit` what happened to lines until then.
        """
        ...

    def outbox(self, target: str) -> Outbox:
        """Return the notices for a target of this name, to be sent. Those of all tenants. Raises `ValueError`."""
        ...

    async def failed_notices(self, record_ids: Iterable[str], *, tenant: Tenant) -> tuple[FailedNotice, ...]:
        """Return the notices of these records, at most 500, that were given up."""
        ...

    def watch(self) -> AbstractContextManager[Watch]:
        """Return what wakes one that waits for something to do; it may wake for nothing."""
        ...

    async def aclose(self) -> None:
        """Close what is open. A store that is used again opens again."""
        ...


_AT_ONCE = 100


@record
class BadLine:
    """Where the chain of an audit breaks first.

    ``reason`` is "changed"; "missing": there is no line of this number; or "rewritten": the chain holds, and is not
    the one of the head that was kept, from this line or from one before it on. ``line`` is what stands there, if
    anything does.
    """

    sequence: int
    reason: Literal["changed", "missing", "rewritten"]
    line: AuditLine | None


async def verify_audit(store: InterruptStore, head: str | None = None) -> BadLine | None:
    """Return where the audit of a store was first changed, or where a line was left out; None for a whole one.

    Only with a ``head`` that `InterruptStore.audit_head` gave before, and that was kept where whoever could write to
    the database could not, a chain that was rewritten or cut as a whole shows. All lines are read, in pages, off the
    event loop. Raises `ValueError` for a ``head`` that is none.
    """
    kept = head_of(head) if isinstance(head, str) else None
    if head is not None and kept is None:
        raise ValueError(f"head must be what audit_head() gave, got {head!r}")
    own = head_of(await store.audit_head())
    chain = _Chain([one for one in (kept, own) if one is not None])
    while True:
        page = [line async for line in store.audit(tenant=ALL_TENANTS, after=chain.sequence, limit=_AT_ONCE)]
        bad = await in_own_thread(lambda page=page: chain.first_bad(page), "codemode-audit")
        if bad is not None:
            return bad
        if len(page) < _AT_ONCE:
            return chain.cut() or (BadLine(0, "changed", None) if own is None else None)


class _Chain:
    """A chain as far as it was read. ``heads`` are numbers and hashes of lines that it must have."""

    def __init__(self, heads: Iterable[tuple[int, str]]) -> None:
        self._heads = list(heads)
        self._last: AuditLine | None = None
        self.sequence = 0

    def first_bad(self, lines: Iterable[AuditLine]) -> BadLine | None:
        """Go on with these lines."""
        for line in lines:
            bad = self._bad(line)
            if bad is not None:
                return bad
            self._last, self.sequence = line, line.sequence
        return None

    def cut(self) -> BadLine | None:
        """Tell what is missing behind the last line."""
        if any(number > self.sequence for number, _ in self._heads):
            return BadLine(self.sequence + 1, "missing", None)
        return None

    def _bad(self, line: AuditLine) -> BadLine | None:
        expected = self.sequence + 1
        if line.sequence != expected:
            return BadLine(expected, "missing", None)
        if hash_of(line) != line.hash:
            return BadLine(expected, "changed", line)
        if line.previous != (self._last.hash if self._last is not None else BEGINNING):
            # This one is as it was written: the one before is not, and has a hash that fits.
            return BadLine(self.sequence or expected, "changed", self._last or line)
        if any(number == expected and found != line.hash for number, found in self._heads):
            return BadLine(expected, "rewritten", line)
        return None
