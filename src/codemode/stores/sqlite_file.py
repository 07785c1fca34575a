"""A SQLite file, for all processes of a machine that open it. Connections are kept from transaction to transaction."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TypeVar

from ..continuations.guard import GuardClock
from ..continuations.sqlite_guard import OwnFile, make_private
from ..host.forks import begin_anew_in_forks, forkable_lock
from .schema import bring_up_to_date
from .session import Row, Session, making, time_of, transaction
from .sqlite_dialect import (
    DIALECT,
    Free,
    close_all,
    connected,
    leave_free,
    lent,
    made_lasting,
    told,
    unusable,
)
from .sqlite_glances import Glances
from .sqlite_journal import JournalConnections
from .watches import LocalWatch, watches_of

ResultT = TypeVar("ResultT")


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

    def watch(self) -> AbstractContextManager[LocalWatch]:
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
