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
from ..host.forks import begin_anew_in_forks, forkable_lock, leave_to_the_parent
from ..options.checked_fields import WrongTypeError
from .change_notifier import Watch, watches_of
from .errors import StoreUnavailableError
from .tables import CHANGED, FOLLOWED, LINE_WRITTEN, bring_up_to_date
from .transaction import Dialect, Row, Session, making, time_of, transaction

DIALECT = Dialect(
    placeholder="?",
    begin_reading="BEGIN",
    begin_writing="BEGIN IMMEDIATE",
    begin_making=("BEGIN IMMEDIATE",),
    counter="SELECT sequence, audit_sequence, audit_hash FROM codemode_store",
    time="SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    locking="",
    clustered=" WITHOUT ROWID",
    blob="BLOB",
    behind_many=None,
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
    following=(
        (
            "CREATE TRIGGER codemode_records_are_followed AFTER UPDATE OF state, expires_at_ms ON codemode_records"
            f" WHEN {CHANGED} BEGIN {FOLLOWED} END"
        ),
    ),
    counting=(
        f"CREATE TRIGGER codemode_lines_are_counted AFTER INSERT ON codemode_journal_lines BEGIN {LINE_WRITTEN} END",
    ),
)
PATIENCE_SECONDS = 30
_PAUSE_SECONDS = 0.005
_FILES = ("", "-journal", "-wal", "-shm")
_PRIVATE = 0o600
_SCHEMES = ("sqlite", "postgresql", "postgres")


def file_named(path: str | Path) -> str:
    """Return a path as text. Raises `ValueError` for what names no file."""
    if not isinstance(path, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongTypeError(f"path must be a string or a path, got {path!r}")
    named = str(path)
    if named in ("", ":memory:"):
        raise ValueError(f"path must name a file, got {named!r}: for one process there is MemoryInterruptStore")
    scheme = named.partition(":")[0]
    if scheme in _SCHEMES and ":" in named:
        # Not the whole: the URL of another database has a password in it.
        raise ValueError(f"path must name a file, got a URL ({scheme}:...): write the path alone, as in 'approvals.db'")
    return named


class OwnFile:
    """Tells whether a file is still the one that was opened.

    SQLite goes on with what has no name any more: it would keep what nobody else sees, and what is gone with its
    process; and it makes a new file where there is none, in which nothing is claimed.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._known: tuple[int, int] | None = None

    def know(self) -> None:
        """Take it as it is now for the one that was opened."""
        self._known = self._found()

    def require(self) -> None:
        """Raise `OSError` where it was removed or replaced since."""
        try:
            found = self._found()
        except FileNotFoundError:
            found = None
        if found != self._known:
            raise OSError(
                "the file was removed or replaced while it was open here: put it back, or start the processes that"
                " have it open again"
            )

    def _found(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_dev, found.st_ino


def make_private(path: str) -> None:
    """Let nobody else read the file, from before there is anything in it. What SQLite puts beside it follows."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _PRIVATE))
    # Never opened again: closing a descriptor would take away the locks that SQLite holds in other threads.
    for beside in _FILES:
        with suppress(FileNotFoundError, PermissionError):
            file = Path(path + beside)
            if file.stat().st_mode & 0o077:
                file.chmod(_PRIVATE)


def connected(path: str, *settings: str, waits: bool = True) -> sqlite3.Connection:
    """Return a new connection that commits nothing by itself, and waits for its turn to write if it is to."""
    connection = sqlite3.connect(
        path, timeout=PATIENCE_SECONDS if waits else 0, isolation_level=None, check_same_thread=False
    )
    try:
        for setting in settings:
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


class Free(list[sqlite3.Connection]):
    """Connections that nobody uses. ``closings`` counts how often they were closed, for those that were lent then."""

    closings = 0


def made_lasting(path: str) -> sqlite3.Connection:
    """Return a new connection to a file that keeps a log of its writes from now on.

    Another process may be about to turn it on as well, and for that SQLite makes nobody wait.
    """
    connection, until = connected(path), time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                connection.close()
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return connection


@contextmanager
def lent(free: Free, make: Callable[[], sqlite3.Connection]) -> Generator[sqlite3.Connection]:
    """Lend a connection that is free, or a new one. One in which something failed is not used again."""
    closings = free.closings
    try:
        connection = free.pop()
    except IndexError:
        connection = make()
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    free.append(connection)
    if free.closings != closings:  # a thread whose caller was cancelled comes back behind the end of its store
        close_free(free)


@contextmanager
def told(where: str) -> Generator[None]:
    """Raise `StoreUnavailableError` for what a database refuses."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise unusable(where, error) from error


def unusable(where: str, error: Exception) -> StoreUnavailableError:
    """Return what `told` raises."""
    return StoreUnavailableError(f"the store in {where!r} cannot be used: {error}")


def close_all(free: Free) -> None:
    """Close what nobody uses; what is lent is closed when it comes back."""
    free.closings += 1
    close_free(free)


def close_free(free: Free) -> None:
    """Close what nobody uses, of connections that were closed before."""
    with suppress(IndexError):  # another thread may have taken the last one
        while True:
            free.pop().close()


def leave_free(free: Free) -> None:
    """In a forked child: connections do not survive it, and closing them would take away locks of the parent."""
    leave_to_the_parent(*free)
    free.clear()


# One statement on a connection that is kept takes some ten microseconds and is done on the event loop. What could take
# longer is not: a file in which somebody else writes, a disk that has just made us wait, and bringing SQLite's log
# home.

ResultT = TypeVar("ResultT")
_BUSY = 5
_TRIES = 4
# After one that waited for the disk there is none for ten times as long: the event loop stands a tenth of its time.
SLOW_SECONDS, OFF_TIMES = 0.02, 10.0
_WRITES_TO_A_CHECKPOINT, _LONG_LOG_PAGES = 2000, 8000
_PATIENT = f"PRAGMA busy_timeout = {PATIENCE_SECONDS * 1000}"
_NO_CHECKPOINTS = "wal_autocheckpoint = 0"


class JournalConnections:
    """Connections of journals to one file. ``is_synced``: a line is on the disk before the call goes on."""

    def __init__(self, path: str, *, is_synced: bool) -> None:
        self.free = Free()
        self._path = path
        self._is_synced = is_synced
        self._off_until = 0.0
        self._writes = 0
        self._bringing_home = forkable_lock()

    def run_at_once(self, statement: str, values: Row) -> int | None:
        """Run a statement and return how many rows it has changed; None, and nothing was done, if it had to wait."""
        return self.write_at_once(lambda connection: connection.execute(statement, values).rowcount)

    def write_at_once(self, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT | None:
        """Do short work that begins with a write; None, and nothing was done, if it had to wait."""
        begun, waits, closings = time.monotonic(), times_waited(), self.free.closings
        if self._is_synced or begun < self._off_until:
            return None
        try:
            connection = self.free.pop()
        except IndexError:
            return None
        try:
            done = _tried(connection, work)
        except BaseException:
            connection.close()
            raise
        self.free.append(connection)
        if self.free.closings != closings:  # by another thread meanwhile
            close_free(self.free)
        if (took := time.monotonic() - begun) > SLOW_SECONDS and times_waited() != waits:
            self._off_until = begun + took * (1 + OFF_TIMES)
        if done is not None:
            self._writes += 1
            if self._writes >= _WRITES_TO_A_CHECKPOINT:
                self._bring_home_beside()
        return done

    def run(self, statement: str, values: Row) -> int:
        """Run it, however long others write."""
        with self.patient() as connection:
            return connection.execute(statement, values).rowcount

    @contextmanager
    def patient(self) -> Generator[sqlite3.Connection]:
        """Lend a connection that waits for its turn to write."""
        with lent(self.free, self._new) as connection:
            connection.execute(_PATIENT)
            yield connection
            connection.execute("PRAGMA busy_timeout = 0")
        self._writes += 1
        if self._writes >= _WRITES_TO_A_CHECKPOINT:
            self._bring_home_beside()

    def _new(self) -> sqlite3.Connection:
        synchronous = "FULL" if self._is_synced else "NORMAL"
        return connected(self._path, f"synchronous = {synchronous}", _NO_CHECKPOINTS)

    def _bring_home_beside(self) -> None:
        if self._bringing_home.acquire(blocking=False):
            self._writes = 0
            try:
                threading.Thread(target=self._bring_home, name="codemode-checkpoint", daemon=True).start()
            except RuntimeError:  # the process has no room for one: the line is written, and a later one tries again
                self._bringing_home.release()

    def _bring_home(self) -> None:
        """Copy SQLite's log into its file; where it grows faster than that, keep writers away for a moment."""
        try:
            with suppress(sqlite3.Error), closing(connected(self._path)) as connection:
                _, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if pages > _LONG_LOG_PAGES:
                    connection.execute("PRAGMA wal_checkpoint(RESTART)")
        finally:
            self._bringing_home.release()


def _waits_of_this_thread() -> Callable[[], float]:
    """Return what counts how often this thread has waited for anything but a processor that others have."""
    try:
        resource = import_module("resource")
        look, thread = resource.getrusage, resource.RUSAGE_THREAD
    except (ImportError, AttributeError):
        return lambda: math.nan  # nobody counts: never the number of before
    return lambda: look(thread).ru_nvcsw


times_waited = _waits_of_this_thread()


def _tried(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT | None:
    for _ in range(_TRIES):  # another one's line takes no longer than ours
        try:
            return work(connection)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != _BUSY:
                raise
    return None


# A reader of a file with a log waits for no writer; where SQLite has one wait all the same, and where the disk was slow
# a moment ago, nobody looks here, and whoever has asked does so in a thread.


class Glances:
    """One connection to one file that is kept for looks, made in a thread by whoever reads there."""

    def __init__(self, path: str) -> None:
        self.free = Free()
        self._path = path
        self._off_until = 0.0

    def prepare(self) -> None:
        """Have a connection, where there is none."""
        if not self.free:
            with lent(self.free, lambda: connected(self._path, waits=False)):
                pass

    def taken(self, work: Callable[[Session], ResultT], clock: GuardClock | None) -> ResultT | None:
        """Return what a look comes to; None where it would have to wait. Raises what SQLite does."""
        begun, waits, closings = time.monotonic(), times_waited(), self.free.closings
        if begun < self._off_until:
            return None
        try:
            connection = self.free.pop()
        except IndexError:
            return None
        try:
            with transaction(connection, DIALECT, clock, writes=False) as session:
                found = work(session)
        except sqlite3.OperationalError as error:
            connection.close()
            if error.sqlite_errorcode & 0xFF != _BUSY:
                raise
            return None
        except BaseException:
            connection.close()
            raise
        self.free.append(connection)
        if self.free.closings != closings:  # by another thread meanwhile
            close_free(self.free)
        if (took := time.monotonic() - begun) > SLOW_SECONDS and times_waited() != waits:
            self._off_until = begun + took * (1 + OFF_TIMES)
        return found


class Looks:
    """The sequence of the last change, over a connection that is kept from look to look."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._free = Free()
        begin_anew_in_forks(self)

    def __call__(self) -> object:
        """Return it. Raises what SQLite does."""
        if not Path(self._path).exists():
            return None  # to look for what is not there would make it
        with lent(self._free, lambda: connected(self._path, waits=False)) as connection:
            return connection.execute("SELECT sequence FROM codemode_store").fetchone()

    def close(self) -> None:
        """Close the connection."""
        close_all(self._free)

    def after_fork(self) -> None:
        """In a forked child."""
        leave_free(self._free)


class SqliteFile:
    """The file behind a store and its journals; what these write is on the disk at once where ``syncs_journal`` is."""

    dialect = DIALECT
    sees_other_processes = True

    def __init__(self, path: str, clock: GuardClock | None, *, syncs_journal: bool) -> None:
        self._path = path
        self._clock = clock
        self._watches = watches_of(str(Path(path).absolute()), Looks(path))
        self._making = forkable_lock()
        self._is_made = False
        self._file = OwnFile(path)
        self._free = Free()
        self._journals = JournalConnections(path, is_synced=syncs_journal)
        self._glances = Glances(path)
        weakref.finalize(self, close_all, self._free)
        weakref.finalize(self, close_all, self._glances.free)
        weakref.finalize(self, close_all, self._journals.free)
        begin_anew_in_forks(self)

    @property
    def time(self) -> str:
        """See `Database.time`."""
        return time_of(DIALECT, self._clock)

    @contextmanager
    def transaction(self, *, writes: bool) -> Generator[Session]:
        """See `Database.transaction`."""
        with (
            self._usable(),
            lent(self._free, lambda: connected(self._path)) as connection,
            transaction(connection, DIALECT, self._clock, writes=writes) as session,
        ):
            yield session
        if session.has_news:
            self._watches.wake()
        if not writes:
            self._glances.prepare()

    @contextmanager
    def journaling(self) -> Generator[Session]:
        """See `Database.journaling`."""
        with (
            self._usable(),
            self._journals.patient() as connection,
            transaction(connection, DIALECT, self._clock, writes=True, is_counted=False) as session,
        ):
            yield session
        if session.has_news:
            self._watches.wake()

    def run_alone(self, statement: str, values: Row) -> int:
        """See `Database.run_alone`."""
        with self._usable():
            return self._journals.run(statement, values)

    def run_at_once(self, statement: str, values: Row) -> int | None:
        """See `Database.run_at_once`."""
        if not self._is_made:
            return None
        try:
            self._file.require()
            return self._journals.run_at_once(statement, values)
        except (sqlite3.Error, OSError) as error:
            raise unusable(self._path, error) from error

    def journal_at_once(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """See `Database.journal_at_once`."""
        if not self._is_made:
            return None

        def done(connection: sqlite3.Connection) -> tuple[ResultT, bool]:
            with transaction(connection, DIALECT, self._clock, writes=True, is_counted=False) as session:
                given = work(session)
            return given, session.has_news

        with told(self._path):
            self._file.require()
            written = self._journals.write_at_once(done)
        if written is None:
            return None
        if written[1]:
            self._watches.wake()
        return written[0]

    def look_at_once(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """See `Database.look_at_once`."""
        if not self._is_made:
            return None
        with told(self._path):
            self._file.require()
            return self._glances.taken(work, self._clock)

    def watch(self) -> AbstractContextManager[Watch]:
        """See `Database.watch`."""
        return self._watches.watch()

    def close(self) -> None:
        """Close what nobody uses."""
        close_all(self._free)
        close_all(self._journals.free)
        close_all(self._glances.free)
        self._watches.close()

    def after_fork(self) -> None:
        """In a forked child: connections are their process's alone."""
        leave_free(self._free)
        leave_free(self._journals.free)
        leave_free(self._glances.free)

    @contextmanager
    def _usable(self) -> Generator[None]:
        with told(self._path):
            if not self._is_made:
                self._make()
            self._file.require()
            yield

    def _make(self) -> None:
        with self._making:
            if self._is_made:
                return
            make_private(self._path)
            with (
                closing(made_lasting(self._path)) as connection,
                making(connection, DIALECT) as session,
            ):
                bring_up_to_date(session)
            self._file.know()
            self._is_made = True
