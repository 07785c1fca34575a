"""What SQLite says differently, and its connections: how they are made, lent, and what becomes of them in a fork."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from ..host.forks import leave_to_the_parent
from .errors import StoreUnavailable
from .journal_tables import LINE_WRITTEN
from .listing_tables import CHANGED, FOLLOWED
from .session import Dialect

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
    """Raise `StoreUnavailable` for what a database refuses."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise unusable(where, error) from error


def unusable(where: str, error: Exception) -> StoreUnavailable:
    """Return what `told` raises."""
    return StoreUnavailable(f"the store in {where!r} cannot be used: {error}")


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
