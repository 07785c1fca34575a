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
from ..host.forks import create_fork_safe_lock, register_fork_reset
from .change_notifier import ChangeNotifier, ChangeWatch
from .interrupt_store import InterruptStore
from .sqlite_file import (
    DIALECT,
    FileIdentity,
    IdleConnections,
    SqliteFileDatabase,
    abandon_connections_in_child,
    close_idle_and_returned_connections,
    create_or_restrict_private_file,
    open_sqlite_connection,
    require_file_path,
    translate_to_store_unavailable,
)
from .tables import create_or_migrate_tables
from .transaction import Row, Session, create_time_sql, table_creation_transaction, transaction

_MEMORY_PATH = ":memory:"
ResultT = TypeVar("ResultT")


class SqliteMemoryDatabase:
    """An in-memory database for a store and its journals."""

    dialect = DIALECT
    is_shared_between_processes = False

    def __init__(self, clock: GuardClock | None) -> None:
        self._clock = clock
        self._notifier = ChangeNotifier()
        self._lock = threading.Lock()
        self._connections = IdleConnections()
        self._finalizer = weakref.finalize(self, _close_if_unused, self._lock, self._connections)
        register_fork_reset(self)

    @property
    def time_sql(self) -> str:
        """See `Database.time_sql`."""
        return create_time_sql(DIALECT, self._clock)

    def transaction(self, *, writes: bool) -> AbstractContextManager[Session]:
        """See `Database.transaction`."""
        return self._transaction(writes=writes, uses_counter=True)

    def journal_transaction(self) -> AbstractContextManager[Session]:
        """See `Database.journal_transaction`."""
        return self._transaction(writes=True, uses_counter=False)

    def run_statement(self, statement: str, values: Row) -> int:
        """See `Database.run_statement`."""
        with self._lock, translate_to_store_unavailable(_MEMORY_PATH):
            return self._get_or_open_connection().execute(statement, values).rowcount

    def run_statement_nowait(self, statement: str, values: Row) -> int | None:
        """See `Database.run_statement_nowait`."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            with translate_to_store_unavailable(_MEMORY_PATH):
                return self._get_or_open_connection().execute(statement, values).rowcount
        finally:
            self._lock.release()

    def run_journal_transaction_nowait(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """See `Database.run_journal_transaction_nowait`: a thread is as fast for an in-memory database."""
        del work
        return None

    def run_read_nowait(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """See `Database.run_read_nowait`, likewise."""
        del work
        return None

    def watch(self) -> AbstractContextManager[ChangeWatch]:
        """See `Database.watch`."""
        return self._notifier.watch()

    def close(self) -> None:
        """Do nothing: the data would be lost."""

    def after_fork(self) -> None:
        """In a forked child: replace a connection that another thread was using, as that thread does not exist here."""
        if self._lock.locked():
            self._finalizer.detach()
            abandon_connections_in_child(self._connections)
            self._lock = threading.Lock()
            self._finalizer = weakref.finalize(self, _close_if_unused, self._lock, self._connections)

    @contextmanager
    def _transaction(self, *, writes: bool, uses_counter: bool) -> Generator[Session]:
        with (
            self._lock,
            translate_to_store_unavailable(_MEMORY_PATH),
            transaction(
                self._get_or_open_connection(), DIALECT, self._clock, writes=writes, uses_counter=uses_counter
            ) as session,
        ):
            yield session
        if session.needs_notify:
            self._notifier.notify()

    def _get_or_open_connection(self) -> sqlite3.Connection:
        if not self._connections:
            connection = open_sqlite_connection(_MEMORY_PATH)
            with table_creation_transaction(connection, DIALECT) as session:
                create_or_migrate_tables(session)
            self._connections.append(connection)
        return self._connections[0]


def _close_if_unused(lock: threading.Lock, connections: IdleConnections) -> None:
    """Close the connection unless a thread is using it, which would crash the process."""
    if lock.acquire(blocking=False):
        close_idle_and_returned_connections(connections)
        lock.release()


_MEMORY_RETENTION_MS = 3_600_000


class SqliteInterruptStore(InterruptStore):
    """A store in a SQLite file, which only its owner can read, with its side files.

    The file is opened on first use, off the event loop. Time is the database's, unless a test passes a ``clock``. Every
    write is on disk when its call returns, except journal lines: they survive the death of processes, but a power
    failure may lose the last moments. ``syncs_journal`` puts them on disk too, at the price of two disk waits per call
    of a program. ``max_open_per_tenant`` limits the open records of one tenant (None: unlimited); `put` and `rest`
    raise `StoreFullError` beyond it. Raises `ValueError` for an invalid ``path``.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        syncs_journal: bool = False,
        max_open_per_tenant: int | None = None,
        clock: GuardClock | None = None,
    ) -> None:
        guard = _SqliteResumeGuard(path, clock=clock)
        database = SqliteFileDatabase(str(path), clock, syncs_journal=syncs_journal)
        super().__init__(database, guard, max_open_per_tenant=max_open_per_tenant)


_creation_lock = create_fork_safe_lock()


class _SqliteResumeGuard(SqlResumeGuard):
    """Resume claims in the store's file. Claims are deleted a day after they have expired.

    The file is opened on first use, off the event loop. Raises `StoreUnavailableError`.
    """

    table = "resumes"

    def __init__(self, path: str | Path, *, clock: GuardClock | None = None) -> None:
        super().__init__(clock)
        self._path = require_file_path(path)
        self._file_identity = FileIdentity(self._path)
        self._is_open = False

    def _read_database_time_ms(self, connection: StatementExecutor) -> int:
        return connection.execute(DIALECT.time_query).fetchone()[0]

    def _create_file_and_table(self) -> None:
        with _creation_lock:
            if self._is_open:
                return
            create_or_restrict_private_file(self._path)
            with self._connect_in_transaction() as connection:
                create_claims_table(connection, self.table)
            self._file_identity.remember_file()
            self._is_open = True

    @contextmanager
    def _transaction(self) -> Generator[StatementExecutor]:
        with translate_to_store_unavailable(self._path):
            if not self._is_open:
                self._create_file_and_table()
            self._file_identity.require_unchanged()
            with self._connect_in_transaction() as connection:
                yield connection

    @contextmanager
    def _connect_in_transaction(self) -> Generator[sqlite3.Connection]:
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
    """A store in the memory of this process. Ended records and journals are kept for an hour.

    ``max_open_per_tenant`` is that of `SqliteInterruptStore`.
    """

    def __init__(self, *, max_open_per_tenant: int | None = None, clock: GuardClock | None = None) -> None:
        limits = {"keeps_ended_ms": _MEMORY_RETENTION_MS, "max_open_per_tenant": max_open_per_tenant}
        super().__init__(SqliteMemoryDatabase(clock), MemoryResumeGuard(clock=clock), **limits)
