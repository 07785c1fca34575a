"""Define journals, which record calls before they start, and keep them in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from ..host.forks import create_fork_safe_lock
from .guard import Backoff, GuardClock

_RUNNING_HOLD, _RUNNING_HOLD_MS = "run", 24 * 3_600_000
_JOURNAL_HOLD_PREFIX = "journal "


class MemoryContentStore:
    """Content in memory, as `codemode.stores.journal.SqlContentStore` keeps it in a database."""

    def __init__(self, clock: GuardClock) -> None:
        self._clock = clock
        self._parts: dict[str, dict[str, tuple[str, bytes]]] = {}
        self._holds: dict[str, dict[str, int | None]] = {}

    async def put_content(self, run: str, part_id: str, description: str, data: bytes) -> None:
        """Store a part for a run, unless the run has it."""
        self._holds.setdefault(run, {})[_RUNNING_HOLD] = self._clock.now_ms() + _RUNNING_HOLD_MS
        self._parts.setdefault(run, {}).setdefault(part_id, (description, data))

    async def get_content(self, run: str, part_id: str) -> tuple[str, bytes] | None:
        """Return description and data of a part of a run, or None."""
        return self._parts.get(run, {}).get(part_id)

    async def hold_content(
        self, run: str, *, nonce: str | None = None, until_ms: int | None = None, journal: str | None = None
    ) -> None:
        """Keep the content of a run for the pause with this ``nonce`` until then, or for the journal of this key."""
        self._holds.setdefault(run, {})[(nonce or "") if journal is None else _JOURNAL_HOLD_PREFIX + journal] = until_ms

    def delete_holds_of_journals_and_unheld_content(self, journals: Iterable[str]) -> None:
        """Delete content that only these journals held, and content that nothing holds."""
        removed_holds, now_ms = {_JOURNAL_HOLD_PREFIX + key for key in journals}, self._clock.now_ms()
        for run, holds in list(self._holds.items()):
            if removed_holds & holds.keys():
                holds.pop(_RUNNING_HOLD, None)
            remaining_holds = {
                name: until
                for name, until in holds.items()
                if name not in removed_holds and (until is None or until > now_ms)
            }
            self._holds[run] = remaining_holds
            if not remaining_holds:
                del self._holds[run]
                self._parts.pop(run, None)


# A journal stores texts by key without reading them: they are signed, and sealed if continuations are. One host owns
# the journal of an invocation while it renews its lease; each opening has a number, and writes of an earlier owner are
# refused. The journal judges time, not its callers.

JOURNAL_LEASE_MS = 30_000
"""How long an owner has a journal without renewal; it renews after a third of that."""


@dataclass(frozen=True, slots=True)
class OpenedJournal:
    """The journal of one invocation, owned while its lease is renewed, unless ``outcome`` is set.

    ``number`` is that of this opening, 0 if the journal was not taken; ``head`` is the text of its first opener;
    ``lines`` are all written lines in order. ``is_takeover``: the last owner neither ended nor released it.
    """

    key: str
    number: int
    head: str
    lines: tuple[str, ...]
    outcome: str | None
    is_takeover: bool


class Journal(Protocol):
    """Stores the journals of invocations. Every method is atomic across all users of the journal.

    An exception ends the run: no call starts that is not written, and no outcome is reported. An optional method
    ``write_nowait(opened, lines)`` writes without waiting and returns None if it would have to wait. With
    ``put_content``, ``get_content`` and ``hold_content``, as in `MemoryJournal`, it stores the images, audio and
    files of programs too.
    """

    @property
    def lease_ms(self) -> int:
        """How long an owner has a journal without renewal, in milliseconds."""
        ...

    @property
    def is_shared_between_processes(self) -> bool:
        """True if other processes see the lines."""
        ...

    async def open(self, key: str, head: str, *, again: bool = False) -> OpenedJournal:
        """Take the journal of an invocation; a new one gets this head.

        Waits while another owner has it, until its lease lapses or it is released or ended. An ended journal is
        returned with its outcome and not taken; with ``again`` the outcome of a pause is cleared and the
        journal is taken, unless the outcome was final.
        """
        ...

    async def write(self, opened: OpenedJournal, lines: Sequence[str]) -> bool:
        """Append lines, all or none. Returns False if another owner has the journal; then nothing was written."""
        ...

    async def renew(self, opened: OpenedJournal) -> bool:
        """Renew the lease. Returns False if another owner has the journal: the caller must stop."""
        ...

    async def end(self, opened: OpenedJournal, outcome: str, *, is_final: bool) -> bool:
        """Record the outcome of the invocation and release the lease. Returns False if another owner has the journal.

        A final outcome stays, and the lines are deleted; the outcome of a pause is cleared by the resume, which
        continues from the lines.
        """
        ...

    async def release(self, opened: OpenedJournal) -> bool:
        """Release the lease without an outcome. The next owner continues from the lines. False if it was not held."""
        ...


@dataclass(slots=True)
class _JournalRow:
    head: str
    changed_at_seconds: float
    lines: list[str] = field(default_factory=list[str])
    number: int = 0
    lease_until: float | None = None  # the end of the lease; None: no owner
    outcome: str | None = None
    is_final: bool = False


class MemoryJournal(MemoryContentStore):
    """Journals in the memory of this process, with the content of their programs.

    They stay until `purge`, and other processes do not see them.

    ``lease_ms`` is how long an owner has a journal without renewal. Tests pass a ``clock``.
    """

    is_shared_between_processes = False

    def __init__(self, *, lease_ms: int = JOURNAL_LEASE_MS, clock: GuardClock | None = None) -> None:
        if lease_ms < 1:
            raise ValueError(f"lease_ms must be at least 1, got {lease_ms}")
        self.lease_ms = lease_ms
        self._clock = clock if clock is not None else GuardClock()
        super().__init__(self._clock)
        self._rows: dict[str, _JournalRow] = {}
        self._lock = create_fork_safe_lock()

    async def open(self, key: str, head: str, *, again: bool = False) -> OpenedJournal:
        """See `Journal.open`."""
        backoff = Backoff(self._clock)
        while (opened := self._try_open(key, head, again=again)) is None:
            await backoff.wait()
        return opened

    async def write(self, opened: OpenedJournal, lines: Sequence[str]) -> bool:
        """See `Journal.write`."""
        return self.write_nowait(opened, lines)

    def write_nowait(self, opened: OpenedJournal, lines: Sequence[str]) -> bool:
        """Write as `write` does, without waiting."""
        with self._lock:
            row = self._touch_owned_row(opened)
            if row is None:
                return False
            row.lines += lines
            return True

    async def renew(self, opened: OpenedJournal) -> bool:
        """See `Journal.renew`."""
        with self._lock:
            row = self._touch_owned_row(opened)
            if row is None:
                return False
            row.lease_until = self._clock.monotonic_seconds() + self.lease_ms / 1000
            return True

    async def end(self, opened: OpenedJournal, outcome: str, *, is_final: bool) -> bool:
        """See `Journal.end`."""
        with self._lock:
            row = self._touch_owned_row(opened)
            if row is None:
                return False
            row.outcome, row.is_final, row.lease_until = outcome, is_final, None
            if is_final:
                row.lines.clear()
            return True

    async def release(self, opened: OpenedJournal) -> bool:
        """See `Journal.release`."""
        with self._lock:
            row = self._touch_owned_row(opened)
            if row is None:
                return False
            row.lease_until = None
            return True

    async def purge(self, older_than: timedelta) -> int:
        """Delete journals without an owner that were not changed for so long; return their number."""
        with self._lock:
            now = self._clock.monotonic_seconds()
            before = now - older_than.total_seconds()
            old = [
                key
                for key, row in self._rows.items()
                if row.changed_at_seconds <= before and (row.lease_until or 0) <= now
            ]
            for key in old:
                del self._rows[key]
            self.delete_holds_of_journals_and_unheld_content(old)
            return len(old)

    def _try_open(self, key: str, head: str, *, again: bool) -> OpenedJournal | None:
        """Return the journal; None while another owner has it."""
        with self._lock:
            now = self._clock.monotonic_seconds()
            row = self._rows.get(key)
            if row is None:
                row = self._rows[key] = _JournalRow(head, now)
            if row.outcome is not None and (row.is_final or not again):
                return OpenedJournal(key, 0, row.head, tuple(row.lines), row.outcome, is_takeover=False)
            if row.lease_until is not None and now < row.lease_until:
                return None
            is_takeover = row.lease_until is not None
            row.number, row.outcome = row.number + 1, None
            row.changed_at_seconds, row.lease_until = now, now + self.lease_ms / 1000
            return OpenedJournal(key, row.number, row.head, tuple(row.lines), None, is_takeover)

    def _touch_owned_row(self, opened: OpenedJournal) -> _JournalRow | None:
        """Return the row, marked as changed now, if this is its last opening, even if the lease is over."""
        row = self._rows.get(opened.key)
        if row is None or row.lease_until is None or row.number != opened.number:  # an ended journal has no owner
            return None
        row.changed_at_seconds = self._clock.monotonic_seconds()
        return row
