"""Pauses in a SQLite file, for all processes of a machine that open it; and in memory, for one process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ..continuations.guard import GuardClock, MemoryResumeGuard
from ..continuations.sql_guard import Statements
from ..continuations.sqlite_guard import SqliteResumeGuard
from .sql_store import SqlStore
from .sqlite_dialect import told
from .sqlite_file import SqliteFile
from .sqlite_memory import SqliteMemory

_KEPT_IN_MEMORY_MS = 3_600_000


class SqliteInterruptStore(SqlStore):
    """Pauses in a SQLite file; it and what stands beside it are readable by its owner alone.

    The file is opened when it is first needed, off the event loop. Time is the database's, unless a test gives a
    ``clock``. What was told is on the disk, except for what journals write: the death of no process loses that, but a
    machine that loses its power may lose the last moments of it. ``syncs_journal`` has that on the disk as well, which
    costs each call of a program two waits for the disk. ``max_open_per_tenant`` is how many records of one tenant may
    wait, rest or be resumed at a time (None: any number); `put` and `rest` raise `StoreFull` for one more.
    Raises `ValueError` for a ``path`` that is none.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        syncs_journal: bool = False,
        max_open_per_tenant: int | None = None,
        clock: GuardClock | None = None,
    ) -> None:
        if str(path) == ":memory:":
            raise ValueError("path must name a file, got ':memory:': for one process there is MemoryInterruptStore")
        guard = _Claims(path, clock=clock)
        database = SqliteFile(str(path), clock, syncs_journal=syncs_journal)
        super().__init__(database, guard, max_open_per_tenant=max_open_per_tenant)


class _Claims(SqliteResumeGuard):
    """Claims beside the pauses, which fail as everything of their store does."""

    @contextmanager
    def _transaction(self) -> Generator[Statements]:
        with told(self._path), super()._transaction() as statements:
            yield statements


class MemoryInterruptStore(SqlStore):
    """Pauses of this process, gone with it. Records and journals that have ended are kept for an hour.

    ``max_open_per_tenant`` is as `SqliteInterruptStore` has it.
    """

    def __init__(self, *, max_open_per_tenant: int | None = None, clock: GuardClock | None = None) -> None:
        limits = {"keeps_ended_ms": _KEPT_IN_MEMORY_MS, "max_open_per_tenant": max_open_per_tenant}
        super().__init__(SqliteMemory(clock), MemoryResumeGuard(clock=clock), **limits)
