"""Pauses in a SQLite file, for all processes of a machine that open it; and in memory, for one process."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ..continuations.guard import GuardClock, MemoryResumeGuard
from ..continuations.sqlite_guard import SqliteResumeGuard, make_private
from .errors import StoreUnavailable
from .schema import bring_up_to_date
from .session import Dialect, Session, making, transaction
from .sql_store import SqlStore
from .watches import LocalWatch, LocalWatches

_KEPT_IN_MEMORY_MS = 3_600_000
DIALECT = Dialect(
    placeholder="?",
    begin_reading="BEGIN",
    begin_writing="BEGIN IMMEDIATE",
    begin_making=("BEGIN IMMEDIATE",),
    counter="SELECT sequence, audit_sequence, audit_hash FROM codemode_store",
    time="SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    notify=None,
    find_tables="SELECT (SELECT name FROM sqlite_master WHERE name = 'codemode_store')",
    append_only=tuple(
        f"CREATE TRIGGER codemode_audit_{name} BEFORE {event} BEGIN SELECT RAISE(ABORT, '{name}: lines stay'); END"
        for name, event in (
            ("is_not_changed", "UPDATE ON codemode_audit"),
            ("is_not_deleted", "DELETE ON codemode_audit"),
            # INSERT OR REPLACE deletes without asking the one above.
            (
                "is_not_replaced",
                "INSERT ON codemode_audit WHEN EXISTS (SELECT 1 FROM codemode_audit WHERE sequence = NEW.sequence)",
            ),
        )
    ),
)


class SqliteInterruptStore(SqlStore):
    """Pauses in a SQLite file; it and what stands beside it are readable by its owner alone.

    The file is opened when it is first needed, off the event loop. Time is the database's, unless a test gives a
    ``clock``. Raises `ValueError` for a ``path`` that is none.
    """

    def __init__(self, path: str | Path, *, clock: GuardClock | None = None) -> None:
        super().__init__(_Database(str(path), clock), SqliteResumeGuard(path, clock=clock))


class MemoryInterruptStore(SqlStore):
    """Pauses of this process, gone with it. Records that have ended are kept for an hour."""

    def __init__(self, *, clock: GuardClock | None = None) -> None:
        guard = MemoryResumeGuard(clock=clock)
        super().__init__(_Database(":memory:", clock), guard, keeps_ended_ms=_KEPT_IN_MEMORY_MS)


class _Database:
    """Connections to one file, kept open from transaction to transaction; of memory there is but one."""

    def __init__(self, path: str, clock: GuardClock | None) -> None:
        self._path = path
        self._clock = clock
        self._watches = LocalWatches()
        self._turn = threading.Lock()  # of the one connection to memory, and of who makes the tables
        self._free: list[sqlite3.Connection] = []
        self._is_made = False
        weakref.finalize(self, _close_all, self._free)
        if hasattr(os, "register_at_fork"):
            _databases.add(self)

    @contextmanager
    def transaction(self, *, writes: bool) -> Generator[Session]:
        """See `Database.transaction`."""
        try:
            with (
                self._connection() as connection,
                transaction(connection, DIALECT, self._clock, writes=writes) as session,
            ):
                yield session
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(f"the store in {self._path!r} cannot be used: {error}") from error
        if writes:
            self._watches.wake()

    def watch(self) -> AbstractContextManager[LocalWatch]:
        """See `Database.watch`."""
        return self._watches.watch()

    def close(self) -> None:
        """Close what no transaction uses. What is in memory stays as long as its store."""
        if self._path != ":memory:":
            with self._turn:
                _close_all(self._free)

    def after_fork(self) -> None:
        """In a forked child: a thread that is not in it may hold a lock, and SQLite's connections do not survive it."""
        self._turn = threading.Lock()
        if self._path != ":memory:":
            _inherited.extend(self._free)  # closing them would take away locks of the parent
            self._free.clear()

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection]:
        if self._path == ":memory:":
            with self._turn:
                if not self._is_made:
                    self._free.append(self._connected())
                    self._make(self._free[0])
                yield self._free[0]
            return
        with self._turn:
            if not self._is_made:
                make_private(self._path)
                connection = self._connected()
                try:
                    connection.execute("PRAGMA journal_mode = WAL")
                    self._make(connection)
                finally:
                    connection.close()
            connection = self._free.pop() if self._free else None
        if connection is None:
            connection = self._connected()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._free.append(connection)

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30, isolation_level=None, check_same_thread=False)

    def _make(self, connection: sqlite3.Connection) -> None:
        with making(connection, DIALECT) as session:
            bring_up_to_date(session)
        self._is_made = True


def _close_all(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()


_inherited: list[sqlite3.Connection] = []
_databases: weakref.WeakSet[_Database] = weakref.WeakSet()


def _after_fork() -> None:
    for database in list(_databases):
        database.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
