"""SQLite's dialect, and a SQLite file that all processes of a machine share."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from ..continuations.guard import GuardClock
from ..host.forks import create_fork_safe_lock, never_finalize_in_child, register_fork_reset
from ..options.checked_fields import WrongTypeError
from .change_notifier import ChangeWatch, get_or_create_notifier
from .errors import StoreUnavailableError
from .tables import COUNT_LINE_SQL, FOLLOW_RECORD_SQL, RECORD_CHANGED_CONDITION, create_or_migrate_tables
from .transaction import Row, Session, SqlDialect, create_time_sql, table_creation_transaction, transaction

DIALECT = SqlDialect(
    placeholder="?",
    begin_reading="BEGIN",
    begin_writing="BEGIN IMMEDIATE",
    begin_creating=("BEGIN IMMEDIATE",),
    counter_query="SELECT sequence, audit_sequence, audit_hash FROM codemode_store",
    time_query="SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    for_update="",
    clustered_suffix=" WITHOUT ROWID",
    blob_type="BLOB",
    after_executemany=None,
    notify=None,
    tables_query="SELECT (SELECT name FROM sqlite_master WHERE name = 'codemode_store')",
    append_only_triggers=tuple(
        f"CREATE TRIGGER codemode_audit_{name} BEFORE {event} BEGIN SELECT RAISE(ABORT, '{name}: lines stay'); END"
        for name, event in (
            ("is_not_changed", "UPDATE ON codemode_audit"),
            ("is_not_deleted", "DELETE ON codemode_audit"),
            # INSERT OR REPLACE does not fire the delete trigger.
            (
                "is_not_replaced",
                "INSERT ON codemode_audit WHEN EXISTS (SELECT 1 FROM codemode_audit WHERE sequence = NEW.sequence)",
            ),
        )
    ),
    follow_triggers=(
        (
            "CREATE TRIGGER codemode_records_are_followed AFTER UPDATE OF state, expires_at_ms ON codemode_records"
            f" WHEN {RECORD_CHANGED_CONDITION} BEGIN {FOLLOW_RECORD_SQL} END"
        ),
    ),
    count_triggers=(
        f"CREATE TRIGGER codemode_lines_are_counted AFTER INSERT ON codemode_journal_lines BEGIN {COUNT_LINE_SQL} END",
    ),
)
BUSY_TIMEOUT_SECONDS = 30
_RETRY_SECONDS = 0.005
_FILE_SUFFIXES = ("", "-journal", "-wal", "-shm")
_PRIVATE_MODE = 0o600
_URL_SCHEMES = ("sqlite", "postgresql", "postgres")


def require_file_path(path: str | Path) -> str:
    """Return a path as text. Raises `ValueError` if it names no file."""
    if not isinstance(path, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongTypeError(f"path must be a string or a path, got {path!r}")
    file_path = str(path)
    if file_path in ("", ":memory:"):
        raise ValueError(f"path must name a file, got {file_path!r}: use MemoryInterruptStore for a single process")
    scheme = file_path.partition(":")[0]
    if scheme in _URL_SCHEMES and ":" in file_path:
        # Not the whole URL: it may contain a password.
        raise ValueError(f"path must name a file, got a URL ({scheme}:...): write the path alone, as in 'approvals.db'")
    return file_path


class FileIdentity:
    """Detects that an open file was removed or replaced.

    SQLite continues with an unlinked file, which other processes do not see; and it creates a new file, without claims,
    where none exists.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._identity: tuple[int, int] | None = None

    def remember_file(self) -> None:
        """Remember the file as it is now."""
        self._identity = self._read_identity()

    def require_unchanged(self) -> None:
        """Raise `OSError` if the file was removed or replaced since."""
        try:
            current = self._read_identity()
        except FileNotFoundError:
            current = None
        if current != self._identity:
            raise OSError(
                "the file was removed or replaced while it was open: put it back, or restart the processes that use it"
            )

    def _read_identity(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_dev, found.st_ino


def create_or_restrict_private_file(path: str) -> None:
    """Create a file that only its owner can read, before anything is in it. SQLite's side files get the same mode."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _PRIVATE_MODE))
    # Never reopened: closing a descriptor would release the locks that SQLite holds in other threads.
    for suffix in _FILE_SUFFIXES:
        with suppress(FileNotFoundError, PermissionError):
            file = Path(path + suffix)
            if file.stat().st_mode & 0o077:
                file.chmod(_PRIVATE_MODE)


def open_sqlite_connection(path: str, *settings: str, is_waiting: bool = True) -> sqlite3.Connection:
    """Return a new autocommit connection that waits for its turn to write, if ``is_waiting``."""
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_SECONDS if is_waiting else 0, isolation_level=None, check_same_thread=False
    )
    try:
        for setting in settings:
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


class IdleConnections(list[sqlite3.Connection]):
    """Idle connections. ``close_count`` tells a borrower that the pool was closed meanwhile."""

    close_count = 0


def open_wal_connection(path: str) -> sqlite3.Connection:
    """Return a new connection to a file in WAL mode.

    Another process may be switching the mode at the same time, and SQLite's busy timeout does not cover that.
    """
    connection, deadline = open_sqlite_connection(path), time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                connection.close()
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return connection


@contextmanager
def borrow_connection(
    idle: IdleConnections, open_connection: Callable[[], sqlite3.Connection]
) -> Generator[sqlite3.Connection]:
    """Lend an idle connection or a new one. A connection that failed is closed."""
    close_count = idle.close_count
    try:
        connection = idle.pop()
    except IndexError:
        connection = open_connection()
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    idle.append(connection)
    if idle.close_count != close_count:  # the pool was closed while a thread still used the connection
        close_idle_connections(idle)


@contextmanager
def translate_to_store_unavailable(path: str) -> Generator[None]:
    """Raise `StoreUnavailableError` for errors of the database."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise create_store_unavailable_error(path, error) from error


def create_store_unavailable_error(path: str, error: Exception) -> StoreUnavailableError:
    """Return the error that `translate_to_store_unavailable` raises."""
    return StoreUnavailableError(f"the store in {path!r} cannot be used: {error}")


def close_idle_and_returned_connections(idle: IdleConnections) -> None:
    """Close idle connections; borrowed ones are closed when they are returned."""
    idle.close_count += 1
    close_idle_connections(idle)


def close_idle_connections(idle: IdleConnections) -> None:
    """Close the idle connections of a closed pool."""
    with suppress(IndexError):  # another thread may have taken the last one
        while True:
            idle.pop().close()


def abandon_connections_in_child(idle: IdleConnections) -> None:
    """In a forked child: connections do not survive a fork, and closing them would release locks of the parent."""
    never_finalize_in_child(*idle)
    idle.clear()


# One statement on an open connection takes some ten microseconds and runs on the event loop. Whatever may take longer
# does not: a file with another writer, a disk that was slow a moment ago, and a checkpoint.

ResultT = TypeVar("ResultT")
_SQLITE_BUSY = 5
_MAX_TRIES = 4
# After a slow write, writes leave the event loop for ten times its duration, so that it waits a tenth of its time.
SLOW_WRITE_SECONDS, BACKOFF_FACTOR = 0.02, 10.0
_CHECKPOINT_WRITES, _MAX_WAL_PAGES = 2000, 8000
_SET_BUSY_TIMEOUT = f"PRAGMA busy_timeout = {BUSY_TIMEOUT_SECONDS * 1000}"
_NO_AUTOCHECKPOINT = "wal_autocheckpoint = 0"


class JournalConnections:
    """Connections of journals to one file. ``is_synced``: a line is on disk before the call starts."""

    def __init__(self, path: str, *, is_synced: bool) -> None:
        self.idle = IdleConnections()
        self._path = path
        self._is_synced = is_synced
        self._disabled_until = 0.0
        self._writes = 0
        self._checkpoint_lock = create_fork_safe_lock()

    def run_statement_nowait(self, statement: str, values: Row) -> int | None:
        """Run a statement and return the number of changed rows; None, and nothing was done, if it had to wait."""
        return self.run_write_nowait(lambda connection: connection.execute(statement, values).rowcount)

    def run_write_nowait(self, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT | None:
        """Do short work that starts with a write; None, and nothing was done, if it had to wait."""
        started, wait_count, close_count = time.monotonic(), count_thread_waits(), self.idle.close_count
        if self._is_synced or started < self._disabled_until:
            return None
        try:
            connection = self.idle.pop()
        except IndexError:
            return None
        try:
            result = _try_write(connection, work)
        except BaseException:
            connection.close()
            raise
        self.idle.append(connection)
        if self.idle.close_count != close_count:  # by another thread meanwhile
            close_idle_connections(self.idle)
        if (took := time.monotonic() - started) > SLOW_WRITE_SECONDS and count_thread_waits() != wait_count:
            self._disabled_until = started + took * (1 + BACKOFF_FACTOR)
        if result is not None:
            self._writes += 1
            if self._writes >= _CHECKPOINT_WRITES:
                self._start_checkpoint()
        return result

    def run_statement(self, statement: str, values: Row) -> int:
        """Run a statement, waiting for other writers."""
        with self.borrow_blocking_connection() as connection:
            return connection.execute(statement, values).rowcount

    @contextmanager
    def borrow_blocking_connection(self) -> Generator[sqlite3.Connection]:
        """Lend a connection that waits for its turn to write."""
        with borrow_connection(self.idle, self._connect) as connection:
            connection.execute(_SET_BUSY_TIMEOUT)
            yield connection
            connection.execute("PRAGMA busy_timeout = 0")
        self._writes += 1
        if self._writes >= _CHECKPOINT_WRITES:
            self._start_checkpoint()

    def _connect(self) -> sqlite3.Connection:
        synchronous = "FULL" if self._is_synced else "NORMAL"
        return open_sqlite_connection(self._path, f"synchronous = {synchronous}", _NO_AUTOCHECKPOINT)

    def _start_checkpoint(self) -> None:
        if self._checkpoint_lock.acquire(blocking=False):
            self._writes = 0
            try:
                threading.Thread(target=self._checkpoint, name="codemode-checkpoint", daemon=True).start()
            except RuntimeError:  # no thread available: a later write tries again
                self._checkpoint_lock.release()

    def _checkpoint(self) -> None:
        """Copy the WAL into the file; if it grows faster than that, block writers for a moment."""
        try:
            with suppress(sqlite3.Error), closing(open_sqlite_connection(self._path)) as connection:
                _, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if pages > _MAX_WAL_PAGES:
                    connection.execute("PRAGMA wal_checkpoint(RESTART)")
        finally:
            self._checkpoint_lock.release()


def _create_thread_wait_counter() -> Callable[[], float]:
    """Return a function that counts how often this thread has waited for I/O or a lock."""
    try:
        resource = import_module("resource")
        getrusage, thread = resource.getrusage, resource.RUSAGE_THREAD
    except (ImportError, AttributeError):
        return lambda: math.nan  # not supported: never equal to an earlier value
    return lambda: getrusage(thread).ru_nvcsw


count_thread_waits = _create_thread_wait_counter()


def _try_write(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT | None:
    for _ in range(_MAX_TRIES):  # another writer's line takes no longer than ours
        try:
            return work(connection)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != _SQLITE_BUSY:
                raise
    return None


# In WAL mode a reader waits for no writer. If SQLite has to wait nevertheless, or the disk was slow a moment ago, the
# read is left to a thread.


class NowaitReader:
    """One connection for short reads on the event loop, opened in a thread by other reads."""

    def __init__(self, path: str) -> None:
        self.idle = IdleConnections()
        self._path = path
        self._disabled_until = 0.0

    def ensure_open(self) -> None:
        """Open the connection unless it is open."""
        if not self.idle:
            with borrow_connection(self.idle, lambda: open_sqlite_connection(self._path, is_waiting=False)):
                pass

    def run_read_nowait(self, work: Callable[[Session], ResultT], clock: GuardClock | None) -> ResultT | None:
        """Return the result of a short read; None if it had to wait. Raises SQLite's errors."""
        started, wait_count, close_count = time.monotonic(), count_thread_waits(), self.idle.close_count
        if started < self._disabled_until:
            return None
        try:
            connection = self.idle.pop()
        except IndexError:
            return None
        try:
            with transaction(connection, DIALECT, clock, writes=False) as session:
                result = work(session)
        except sqlite3.OperationalError as error:
            connection.close()
            if error.sqlite_errorcode & 0xFF != _SQLITE_BUSY:
                raise
            return None
        except BaseException:
            connection.close()
            raise
        self.idle.append(connection)
        if self.idle.close_count != close_count:  # by another thread meanwhile
            close_idle_connections(self.idle)
        if (took := time.monotonic() - started) > SLOW_WRITE_SECONDS and count_thread_waits() != wait_count:
            self._disabled_until = started + took * (1 + BACKOFF_FACTOR)
        return result


class SequenceProbe:
    """Reads the sequence number of the last change over a connection that stays open."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle = IdleConnections()
        register_fork_reset(self)

    def __call__(self) -> object:
        """Return the sequence number. Raises SQLite's errors."""
        if not Path(self._path).exists():
            return None  # opening a missing file would create it
        with borrow_connection(self._idle, lambda: open_sqlite_connection(self._path, is_waiting=False)) as connection:
            return connection.execute("SELECT sequence FROM codemode_store").fetchone()

    def close(self) -> None:
        """Close the connection."""
        close_idle_and_returned_connections(self._idle)

    def after_fork(self) -> None:
        """In a forked child."""
        abandon_connections_in_child(self._idle)


class SqliteFileDatabase:
    """The SQLite file of a store and its journals; with ``syncs_journal`` journal lines are on disk at once."""

    dialect = DIALECT
    is_shared_between_processes = True

    def __init__(self, path: str, clock: GuardClock | None, *, syncs_journal: bool) -> None:
        self._path = path
        self._clock = clock
        self._notifier = get_or_create_notifier(str(Path(path).absolute()), SequenceProbe(path))
        self._creation_lock = create_fork_safe_lock()
        self._has_tables = False
        self._file_identity = FileIdentity(path)
        self._idle = IdleConnections()
        self._journals = JournalConnections(path, is_synced=syncs_journal)
        self._nowait_reader = NowaitReader(path)
        weakref.finalize(self, close_idle_and_returned_connections, self._idle)
        weakref.finalize(self, close_idle_and_returned_connections, self._nowait_reader.idle)
        weakref.finalize(self, close_idle_and_returned_connections, self._journals.idle)
        register_fork_reset(self)

    @property
    def time_sql(self) -> str:
        """See `Database.time_sql`."""
        return create_time_sql(DIALECT, self._clock)

    @contextmanager
    def transaction(self, *, writes: bool) -> Generator[Session]:
        """See `Database.transaction`."""
        with (
            self._ensure_usable_and_translate_errors(),
            borrow_connection(self._idle, lambda: open_sqlite_connection(self._path)) as connection,
            transaction(connection, DIALECT, self._clock, writes=writes) as session,
        ):
            yield session
        if session.needs_notify:
            self._notifier.notify()
        if not writes:
            self._nowait_reader.ensure_open()

    @contextmanager
    def journal_transaction(self) -> Generator[Session]:
        """See `Database.journal_transaction`."""
        with (
            self._ensure_usable_and_translate_errors(),
            self._journals.borrow_blocking_connection() as connection,
            transaction(connection, DIALECT, self._clock, writes=True, uses_counter=False) as session,
        ):
            yield session
        if session.needs_notify:
            self._notifier.notify()

    def run_statement(self, statement: str, values: Row) -> int:
        """See `Database.run_statement`."""
        with self._ensure_usable_and_translate_errors():
            return self._journals.run_statement(statement, values)

    def run_statement_nowait(self, statement: str, values: Row) -> int | None:
        """See `Database.run_statement_nowait`."""
        if not self._has_tables:
            return None
        try:
            self._file_identity.require_unchanged()
            return self._journals.run_statement_nowait(statement, values)
        except (sqlite3.Error, OSError) as error:
            raise create_store_unavailable_error(self._path, error) from error

    def run_journal_transaction_nowait(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """See `Database.run_journal_transaction_nowait`."""
        if not self._has_tables:
            return None

        def run_in_transaction(connection: sqlite3.Connection) -> tuple[ResultT, bool]:
            with transaction(connection, DIALECT, self._clock, writes=True, uses_counter=False) as session:
                result = work(session)
            return result, session.needs_notify

        with translate_to_store_unavailable(self._path):
            self._file_identity.require_unchanged()
            done = self._journals.run_write_nowait(run_in_transaction)
        if done is None:
            return None
        result, needs_notify = done
        if needs_notify:
            self._notifier.notify()
        return result

    def run_read_nowait(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """See `Database.run_read_nowait`."""
        if not self._has_tables:
            return None
        with translate_to_store_unavailable(self._path):
            self._file_identity.require_unchanged()
            return self._nowait_reader.run_read_nowait(work, self._clock)

    def watch(self) -> AbstractContextManager[ChangeWatch]:
        """See `Database.watch`."""
        return self._notifier.watch()

    def close(self) -> None:
        """Close idle connections."""
        close_idle_and_returned_connections(self._idle)
        close_idle_and_returned_connections(self._journals.idle)
        close_idle_and_returned_connections(self._nowait_reader.idle)
        self._notifier.close()

    def after_fork(self) -> None:
        """In a forked child: connections belong to the parent."""
        abandon_connections_in_child(self._idle)
        abandon_connections_in_child(self._journals.idle)
        abandon_connections_in_child(self._nowait_reader.idle)

    @contextmanager
    def _ensure_usable_and_translate_errors(self) -> Generator[None]:
        with translate_to_store_unavailable(self._path):
            if not self._has_tables:
                self._ensure_tables()
            self._file_identity.require_unchanged()
            yield

    def _ensure_tables(self) -> None:
        with self._creation_lock:
            if self._has_tables:
                return
            create_or_restrict_private_file(self._path)
            with (
                closing(open_wal_connection(self._path)) as connection,
                table_creation_transaction(connection, DIALECT) as session,
            ):
                create_or_migrate_tables(session)
            self._file_identity.remember_file()
            self._has_tables = True
