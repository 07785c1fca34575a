"""Content in a SQLite file: kept for one run, private, forgotten when it is old."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from codemode import SqliteContentStore


def test_a_part_is_of_one_run(tmp_path: Path):
    path = tmp_path / "content.sqlite"

    async def kept() -> None:
        store = SqliteContentStore(path)
        await store.put_content("run", "part", "{}", b"\x00\xff")
        await store.put_content("run", "part", "other", b"other")
        again = SqliteContentStore(path)
        assert await again.get_content("run", "part") == ("{}", b"\x00\xff")
        assert await again.get_content("another run", "part") is None
        assert await again.get_content("run", "another part") is None

    asyncio.run(kept())
    assert path.stat().st_mode & 0o077 == 0


def test_what_is_old_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def kept() -> None:
        store = SqliteContentStore(tmp_path / "content.sqlite", max_age_ms=1000)
        moments = iter([1.0, 2.0, 2.001])
        monkeypatch.setattr("codemode.continuations.sqlite_content.time.time", lambda: next(moments))
        for part in ("first", "second", "third"):
            await store.put_content("run", part, "{}", b"")
        found = [await store.get_content("run", part) is not None for part in ("first", "second", "third")]
        assert found == [False, True, True]

    asyncio.run(kept())


def test_wrong_settings_and_files_are_told(tmp_path: Path):
    for path in ("", ":memory:", "sqlite:///content.db", Path("sqlite:///content.db")):
        with pytest.raises(ValueError, match="must name a file"):
            SqliteContentStore(path)
    with pytest.raises(ValueError, match="max_age_ms"):
        SqliteContentStore(tmp_path / "a", max_age_ms=0)
    with pytest.raises(OSError, match="content cannot be kept"):
        asyncio.run(SqliteContentStore(tmp_path / "none" / "a").get_content("run", "part"))
