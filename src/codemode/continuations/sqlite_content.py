"""Content of programs in a SQLite file, for all processes that open it. Knows no continuation."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from .sqlite_guard import file_named, make_private

_TABLE = """CREATE TABLE IF NOT EXISTS content (run TEXT NOT NULL, id TEXT NOT NULL, description TEXT NOT NULL,
 data BLOB NOT NULL, kept_at_ms INTEGER NOT NULL, PRIMARY KEY (run, id))"""
_INDEX = "CREATE INDEX IF NOT EXISTS content_by_time ON content (kept_at_ms)"
_MAX_AGE_MS = 30 * 24 * 3_600_000


class SqliteContentStore:
    """Images, audio and files of programs that pause, in a file that its owner alone can read.

    What was put more than ``max_age_ms`` ago is deleted: let that be no less than continuations may be old.
    The file is opened when it is first needed, in a thread. Its methods raise `OSError` when it cannot be used.
    Raises `ValueError` for a ``path`` that is none, and for an age below 1.
    """

    def __init__(self, path: str | Path, *, max_age_ms: int = _MAX_AGE_MS) -> None:
        named = file_named(path)
        if max_age_ms < 1:
            raise ValueError(f"max_age_ms must be positive, got {max_age_ms}")
        self._path = named
        self._max_age_ms = max_age_ms

    async def put_content(self, run: str, part_id: str, description: str, data: bytes) -> None:
        """Keep a part for a run. One that is there stays as it is."""
        await asyncio.to_thread(self._put, run, part_id, description, data)

    async def get_content(self, run: str, part_id: str) -> tuple[str, bytes] | None:
        """Return description and data of a part of a run, or None."""
        return await asyncio.to_thread(self._get, run, part_id)

    def _put(self, run: str, part_id: str, description: str, data: bytes) -> None:
        now = int(time.time() * 1000)
        with self._connection() as connection:
            connection.execute("DELETE FROM content WHERE kept_at_ms < ?", (now - self._max_age_ms,))
            connection.execute(
                "INSERT OR IGNORE INTO content (run, id, description, data, kept_at_ms) VALUES (?, ?, ?, ?, ?)",
                (run, part_id, description, data, now),
            )

    def _get(self, run: str, part_id: str) -> tuple[str, bytes] | None:
        with self._connection() as connection:
            found = connection.execute("SELECT description, data FROM content WHERE run = ? AND id = ?", (run, part_id))
            row = found.fetchone()
        return None if row is None else (row[0], row[1])

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection]:
        """One connection per transaction: it works from any thread and after a fork."""
        try:
            make_private(self._path)
            connection = sqlite3.connect(self._path, timeout=10, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise OSError(f"content cannot be kept in {self._path!r}: {error}") from error
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_TABLE)
            connection.execute(_INDEX)
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise OSError(f"content cannot be kept in {self._path!r}: {error}") from error
        finally:
            connection.close()  # which takes back what was not committed
