"""Principals whose rows stand in a file of tables: when each was last there, and rows of those who are gone."""

from __future__ import annotations

import sqlite3
import time

from ..unused_files import UNUSED_SECONDS

TABLE = "CREATE TABLE IF NOT EXISTS principals (name TEXT PRIMARY KEY, day INTEGER NOT NULL) WITHOUT ROWID"
"""One of the statements of a file whose other tables have a column ``principal``."""
_DAY_SECONDS = 86_400
_GONE = "SELECT name FROM principals WHERE day < ?"


def today() -> int:
    """Return the day, as a number."""
    return int(time.time()) // _DAY_SECONDS


def is_noted(file: sqlite3.Connection, principal: str) -> bool:
    """Tell whether it is kept already that a principal is there today."""
    found = file.execute("SELECT 1 FROM principals WHERE name = ? AND day = ?", (principal, today()))
    return found.fetchone() is not None


def note_use(file: sqlite3.Connection, principal: str, *tables: str) -> None:
    """Keep that a principal is there today, and remove from the ``tables`` what is of those gone for 90 days.

    In the caller's transaction, once a day. Who came before anybody kept that counts as here today.
    """
    for table in tables:
        file.execute(f"INSERT OR IGNORE INTO principals SELECT DISTINCT principal, ? FROM {table}", (today(),))
    file.execute("INSERT OR REPLACE INTO principals VALUES (?, ?)", (principal, today()))
    before = (today() - int(UNUSED_SECONDS) // _DAY_SECONDS,)
    for table in tables:
        file.execute(f"DELETE FROM {table} WHERE principal IN ({_GONE})", before)
    file.execute(f"DELETE FROM principals WHERE name IN ({_GONE})", before)
