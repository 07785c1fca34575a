"""Looks into a SQLite file on the event loop, for what is asked before every run. They wait for nobody.

A reader of a file with a log waits for no writer; where SQLite has one wait all the same, and where the disk was slow
a moment ago, nobody looks here, and whoever has asked does so in a thread.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from ..continuations.guard import GuardClock
from .session import Session, transaction
from .sqlite_dialect import DIALECT, Free, close_free, connected, lent
from .sqlite_journal import OFF_TIMES, SLOW_SECONDS, times_waited

ResultT = TypeVar("ResultT")
_BUSY = 5


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
