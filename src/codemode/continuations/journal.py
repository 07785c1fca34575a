"""The journal of an invocation: each call is written before it begins, and each outcome before the program sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from ..host.forks import forkable_lock
from .guard import Backoff, GuardClock

_RUNNING_HOLD, _RUNNING_HOLD_MS = "run", 24 * 3_600_000
_JOURNAL_HOLD_PREFIX = "journal "


class MemoryContent:
    """What `codemode.stores.journal.SqlContent` is in a database: parts stay while something holds their run."""

    def __init__(self, clock: GuardClock) -> None:
        self._clock = clock
        self._parts: dict[str, dict[str, tuple[str, bytes]]] = {}
        self._holds: dict[str, dict[str, int | None]] = {}

    async def put_content(self, run: str, part_id: str, description: str, data: bytes) -> None:
        """Keep a part for a run. One that is there stays as it is."""
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

    def purge_content(self, journals: Iterable[str]) -> None:
        """Forget what these journals alone have held, and what nothing holds any more."""
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


# Keeps texts by key, and knows neither programs nor what the texts say: they come signed, and sealed where
# continuations are. One host has the journal of an invocation at a time, for as long as it renews its lease; each
# opening has a number, and what an earlier owner still writes is refused. Time is judged by the journal, never by its
# callers.

JOURNAL_LEASE_MS = 30_000
"""How long an owner has a journal without renewing it, which it does every third of that."""


@dataclass(frozen=True, slots=True)
class OpenedJournal:
    """The journal of one invocation: ours while its lease is renewed, unless ``outcome`` says what it has come to.

    ``number`` is that of this opening, 0 when nothing was taken; ``head`` the text that its first opener gave;
    ``lines`` all that was written so far, in order. ``is_takeover``: the owner before neither ended nor released it.
    """

    key: str
    number: int
    head: str
    lines: tuple[str, ...]
    outcome: str | None
    is_takeover: bool


class Journal(Protocol):
    """Where the journals of invocations are kept. Every method is atomic across everything that shares it.

    Whatever it raises ends a run: no call begins that is not written, and no outcome is shown. It may have a method
    ``write_at_once(opened, lines)`` beside: as `write`, without waiting, and None where that would have to wait, and
    nothing was done. With ``put_content``, ``get_content`` and ``hold_content``, those of `MemoryJournal`, it keeps the
    images, audio and files of its programs too.
    """

    @property
    def lease_ms(self) -> int:
        """How long an owner has a journal that it does not renew."""
        ...

    @property
    def sees_other_processes(self) -> bool:
        """Whether other processes see what is written."""
        ...

    async def open(self, key: str, head: str, *, again: bool = False) -> OpenedJournal:
        """Take the journal of an invocation; of one that is not known it is made, with this head.

        Waits while another owner has it: until its lease lapses, or it is released or ended. One that has ended is
        given with its outcome, and not taken; with ``again`` the outcome of a pause is cleared, and it is taken, but
        one that was final stands.
        """
        ...

    async def write(self, opened: OpenedJournal, lines: Sequence[str]) -> bool:
        """Write lines behind the others, all or none. False: it is somebody else's by now, and none was written."""
        ...

    async def renew(self, opened: OpenedJournal) -> bool:
        """Let the lease begin anew. False: it is somebody else's by now, and its owner must stop."""
        ...

    async def end(self, opened: OpenedJournal, outcome: str, *, is_final: bool) -> bool:
        """Keep what the invocation has come to, and give the lease up. False: it is somebody else's by now.

        A final outcome stands, and the lines are erased; that of a pause is cleared by whoever goes on, from the lines.
        """
        ...

    async def release(self, opened: OpenedJournal) -> bool:
        """Give the lease up without an outcome: whoever asks next goes on from the lines. False: it was not held."""
        ...


@dataclass(slots=True)
class _JournalRow:
    head: str
    changed_at_seconds: float
    lines: list[str] = field(default_factory=list[str])
    number: int = 0
    lease_until: float | None = None  # the end of the lease; None: nobody has it
    outcome: str | None = None
    is_final: bool = False


class MemoryJournal(MemoryContent):
    """Journals in the memory of this process, with the content of their programs.

    They are kept until `purge`, and other processes do not see them.

    ``lease_ms`` is how long an owner has one that it does not renew. A test gives a ``clock``.
    """

    sees_other_processes = False

    def __init__(self, *, lease_ms: int = JOURNAL_LEASE_MS, clock: GuardClock | None = None) -> None:
        if lease_ms < 1:
            raise ValueError(f"lease_ms must be at least 1, got {lease_ms}")
        self.lease_ms = lease_ms
        self._clock = clock if clock is not None else GuardClock()
        super().__init__(self._clock)
        self._rows: dict[str, _JournalRow] = {}
        self._lock = forkable_lock()

    async def open(self, key: str, head: str, *, again: bool = False) -> OpenedJournal:
        """See `Journal.open`."""
        backoff = Backoff(self._clock)
        while (opened := self._try_open(key, head, again=again)) is None:
            await backoff.wait()
        return opened

    async def write(self, opened: OpenedJournal, lines: Sequence[str]) -> bool:
        """See `Journal.write`."""
        return self.write_at_once(opened, lines)

    def write_at_once(self, opened: OpenedJournal, lines: Sequence[str]) -> bool:
        """See `Journal.write`."""
        with self._lock:
            row = self._find_owned_row(opened)
            if row is None:
                return False
            row.lines += lines
            return True

    async def renew(self, opened: OpenedJournal) -> bool:
        """See `Journal.renew`."""
        with self._lock:
            row = self._find_owned_row(opened)
            if row is None:
                return False
            row.lease_until = self._clock.seconds() + self.lease_ms / 1000
            return True

    async def end(self, opened: OpenedJournal, outcome: str, *, is_final: bool) -> bool:
        """See `Journal.end`."""
        with self._lock:
            row = self._find_owned_row(opened)
            if row is None:
                return False
            row.outcome, row.is_final, row.lease_until = outcome, is_final, None
            if is_final:
                row.lines.clear()
            return True

    async def release(self, opened: OpenedJournal) -> bool:
        """See `Journal.release`."""
        with self._lock:
            row = self._find_owned_row(opened)
            if row is None:
                return False
            row.lease_until = None
            return True

    async def purge(self, older_than: timedelta) -> int:
        """Forget what nobody has and nobody has changed for so long, and return how many journals that were."""
        with self._lock:
            now = self._clock.seconds()
            before = now - older_than.total_seconds()
            old = [
                key
                for key, row in self._rows.items()
                if row.changed_at_seconds <= before and (row.lease_until or 0) <= now
            ]
            for key in old:
                del self._rows[key]
            self.purge_content(old)
            return len(old)

    def _try_open(self, key: str, head: str, *, again: bool) -> OpenedJournal | None:
        """Return the journal; None while somebody else has it."""
        with self._lock:
            now = self._clock.seconds()
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

    def _find_owned_row(self, opened: OpenedJournal) -> _JournalRow | None:
        """Return what is kept while its last opening is this one, whether or not its lease is over."""
        row = self._rows.get(opened.key)
        if row is None or row.lease_until is None or row.number != opened.number:  # what ended is nobody's
            return None
        row.changed_at_seconds = self._clock.seconds()
        return row
