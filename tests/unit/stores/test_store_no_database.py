"""A file that is no database: the error says so, and nothing of it stays open."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from codemode.stores import SqliteInterruptStore, sqlite_file
from codemode.stores.errors import StoreUnavailableError


def test_a_file_that_is_no_database_is_left_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened = tmp_path / "store.db", list[sqlite3.Connection]()
    path.write_text("a text that is long enough to be read as a header" * 40)

    class Noted(sqlite3.Connection):
        def __init__(self, *given: object, **settings: object) -> None:
            super().__init__(*given, **settings)  # type: ignore[arg-type]
            opened.append(self)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite_file.sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Noted))

    async def main() -> None:
        async with SqliteInterruptStore(path) as store:
            await store.list(tenant="acme")

    with pytest.raises(StoreUnavailableError, match="not a database"):
        asyncio.run(main())
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        sqlite_file.open_sqlite_connection(str(path), "journal_mode = WAL")
    assert len(opened) >= 2
    for one in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            one.execute("SELECT 1")
