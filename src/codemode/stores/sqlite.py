"""Stores in a SQLite file, for all processes of a machine, and in memory, for one process."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from ..continuations.guard import GuardClock, MemoryResumeGuard
from ..continuations.sql_guard import SqlResumeGuard, StatementExecutor, create_claims_table
from ..host.forks import begin_anew_in_forks, forkable_lock
from .change_notifier import LocalWatches, Watch
from .interrupt_store import InterruptStore
from .sqlite_file import (
    DIALECT,
    Free,
    OwnFile,
    SqliteFile,
    close_all,
    connected,
    file_named,
    leave_free,
    make_private,
    told,
)
from .tables import bring_up_to_date
from .transaction import Row, Session, making, time_of, transaction

_PATH = ":memory:"
ResultT = TypeVar("ResultT")


class SqliteMemory:
    """What is in memory behind a store and its journals. It is there as long as these are."""

    dialect = DIALECT
    sees_other_processes = False

    def __init__(self, clock: GuardClock | None) -> None:
        self._clock = clock
        self._watches = LocalWatches()
        self._turn = threading.Lock()
        self._made = Free()
        self._at_end = weakref.finalize(self, _close, self._turn, self._made)
        begin_anew_in_forks(self)

    @property
    def time(self) -> str:
        """See `Database.time`."""
        return time_of(DIALECT, self._clock)

    def transaction(self, *, writes: bool) -> AbstractContextManager[Session]:
        """See `Database.transaction`."""
        return self._transaction(writes=writes, is_counted=True)

    def journaling(self) -> AbstractContextManager[Session]:
        """See `Database.journaling`."""
        return self._transaction(writes=True, is_counted=False)

    def run_alone(self, statement: str, values: Row) -> int:
        """See `Database.run_alone`."""
        with self._turn, told(_PATH):
            return self._connection().execute(statement, values).rowcount

    def run_at_once(self, statement: str, values: Row) -> int | None:
        """See `Database.run_at_once`."""
        if not self._turn.acquire(blocking=False):
            return None
        try:
            with told(_PATH):
                return self._connection().execute(statement, values).rowcount
        finally:
            self._turn.release()

    def journal_at_once(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """See `Database.journal_at_once`: what is in memory is done at once as often as by a thread."""
        del work
        return None

    def look_at_once(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """See `Database.look_at_once`, likewise."""
        del work
        return None

    def watch(self) -> AbstractContextManager[Watch]:
        """See `Database.watch`."""
        return self._watches.watch()

    def close(self) -> None:
        """Close nothing: there would be nothing to open again."""

    def after_fork(self) -> None:
        """In a forked child: it has a copy, but none of what a thread was in that is not here and never comes out."""
        if self._turn.locked():
            self._at_end.detach()
            leave_free(self._made)
            self._turn = threading.Lock()
            self._at_end = weakref.finalize(self, _close, self._turn, self._made)

    @contextmanager
    def _transaction(self, *, writes: bool, is_counted: bool) -> Generator[Session]:
        with (
            self._turn,
            told(_PATH),
            transaction(self._connection(), DIALECT, self._clock, writes=writes, is_counted=is_counted) as session,
        ):
            yield session
        if session.has_news:
            self._watches.wake()

    def _connection(self) -> sqlite3.Connection:
        if not self._made:
            connection = connected(_PATH)
            with making(connection, DIALECT) as session:
                bring_up_to_date(session)
            self._made.append(connection)
        return self._made[0]


def _close(turn: threading.Lock, made: Free) -> None:
    """Close the connection. One that a thread is in is left to it: it would take the process along at its end."""
    if turn.acquire(blocking=False):
        close_all(made)
        turn.release()


_KEPT_IN_MEMORY_MS = 3_600_000


class SqliteInterruptStore(InterruptStore):
    """Pauses in a SQLite file; it and what stands beside it are readable by its owner alone.

    The file is opened when it is first needed, off the event loop. Time is the database's, unless a test gives a
    ``clock``. What was told is on the disk, except for what journals write: the death of no process loses that, but a
    machine that loses its power may lose the last moments of it. ``syncs_journal`` has that on the disk as well, which
    costs each call of a program two waits for the disk. ``max_open_per_tenant`` is how many records of one tenant may
    wait, rest or be resumed at a time (None: any number); `put` and `rest` raise `StoreFullError` for one more.
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
        guard = _Claims(path, clock=clock)
        database = SqliteFile(str(path), clock, syncs_journal=syncs_journal)
        super().__init__(database, guard, max_open_per_tenant=max_open_per_tenant)


_making = forkable_lock()


class _Claims(SqlResumeGuard):
    """Claims of resumes next to the pauses. Old ones are deleted a day after they have expired.

    The file is opened when it is first needed, off the event loop. Raises `StoreUnavailableError`, as all of a store.
    """

    table = "resumes"

    def __init__(self, path: str | Path, *, clock: GuardClock | None = None) -> None:
        super().__init__(clock)
        self._path = file_named(path)
        self._file = OwnFile(self._path)
        self._is_open = False

    def _database_time(self, connection: StatementExecutor) -> int:
        return connection.execute(DIALECT.time).fetchone()[0]

    def _open(self) -> None:
        with _making:
            if self._is_open:
                return
            make_private(self._path)
            with self._connection() as connection:
                create_claims_table(connection, self.table)
            self._file.know()
            self._is_open = True

    @contextmanager
    def _transaction(self) -> Generator[StatementExecutor]:
        with told(self._path):
            if not self._is_open:
                self._open()
            self._file.require()
            with self._connection() as connection:
                yield connection

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection]:
        """One connection per transaction: it works from any thread and after a fork."""
        connection = sqlite3.connect(self._path, timeout=10, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        finally:
            connection.close()


class MemoryInterruptStore(InterruptStore):
    """Pauses of this process, gone with it. Records and journals that have ended are kept for an hour.

    ``max_open_per_tenant`` is as `SqliteInterruptStore` has it.
    """

    def __init__(self, *, max_open_per_tenant: int | None = None, clock: GuardClock | None = None) -> None:
        limits = {"keeps_ended_ms": _KEPT_IN_MEMORY_MS, "max_open_per_tenant": max_open_per_tenant}
        super().__init__(SqliteMemory(clock), MemoryResumeGuard(clock=clock), **limits)
