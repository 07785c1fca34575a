"""How journals write to a SQLite file: in it before the call goes on, so that no death of a process loses a line.

One statement on a connection that is kept takes some ten microseconds and is done on the event loop. What could take
longer is not: a file in which somebody else writes, a disk that has just made us wait, and bringing SQLite's log home.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from typing import TypeVar

from ..host.forks import forkable_lock
from .session import Row
from .sqlite_dialect import PATIENCE_SECONDS, Free, close_free, connected, lent

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
