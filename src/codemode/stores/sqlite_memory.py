"""A SQLite database in memory, for one process: one connection, which one transaction has at a time."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from ..continuations.guard import GuardClock
from ..host.forks import begin_anew_in_forks
from .schema import bring_up_to_date
from .session import Row, Session, making, time_of, transaction
from .sqlite_dialect import DIALECT, Free, close_all, connected, leave_free, told
from .watches import LocalWatch, LocalWatches

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

    def watch(self) -> AbstractContextManager[LocalWatch]:
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
