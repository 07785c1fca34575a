"""Tokens are kept where only their user can read them, whole or not at all; locks are for all processes."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway.oauth.token_store import (
    TokenRecord,
    TokenStore,
    ensure_private_folder,
    find_keyring,
    hold_lock,
    try_lock_and_start_cleanup,
    write_private_text,
)
from codemode_gateway.state_files import UnsafeFileError, read_private_file

KEY = "0" * 40
RECORD = TokenRecord(server="notes", principal="local", saved_at=1.0, access_token="access-token-1")
posix = pytest.mark.skipif(os.name != "posix", reason="modes of files")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@posix
def test_files_and_their_folder_are_the_users_alone(tmp_path: Path):
    before = os.umask(0)
    try:
        asyncio.run(TokenStore(tmp_path / "state" / "tokens").write(KEY, RECORD))
    finally:
        os.umask(before)
    folder = tmp_path / "state" / "tokens"
    assert mode(folder) == 0o700
    assert [mode(one) for one in folder.iterdir()] == [0o600]
    folder.chmod(0o755)
    assert asyncio.run(TokenStore(folder).read(KEY)) == RECORD
    assert mode(folder) == 0o700


@posix
@pytest.mark.parametrize("spoil", ["mode", "link", "folder", "pipe", "large"])
def test_a_file_that_others_could_have_read_or_made_is_not_used(
    tmp_path: Path, spoil: str, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / f"{KEY}.json"
    write_private_text(path, RECORD.model_dump_json())
    if spoil == "mode":
        path.chmod(0o644)
    elif spoil == "large":
        path.write_text("x" * (1 << 19))
    else:
        path.rename(tmp_path / "elsewhere")
        {"link": lambda: path.symlink_to("elsewhere"), "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}[spoil]()
    assert asyncio.run(TokenStore(tmp_path).read(KEY)) is None
    assert str(path) in caplog.text
    assert "access-token" not in caplog.text


@posix
def test_a_folder_that_is_a_link_is_refused(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "tokens").symlink_to("real")
    with pytest.raises(UnsafeFileError):
        ensure_private_folder(tmp_path / "tokens")


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.json"
    write_private_text(path, "before")

    def full(_descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_private_text(path, "after")
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]
    assert read_private_file(path, 100) == "before"


def test_what_a_dead_process_left_is_removed(tmp_path: Path):
    old, new = tmp_path / ".a.1.0123abcd", tmp_path / ".a.2.0123abcd"
    for one in (old, new):
        one.write_text("half")
    os.utime(old, (1, 1))
    write_private_text(tmp_path / "a.json", "text")
    assert sorted(one.name for one in tmp_path.iterdir()) == [new.name, "a.json"]


def test_records_come_back_and_go(tmp_path: Path):
    store = TokenStore(tmp_path / "tokens")

    async def run() -> list[Any]:
        found: list[Any] = [await store.read(KEY)]
        await store.write(KEY, RECORD)
        found.append(await store.read(KEY))
        await store.delete(KEY)
        return [*found, await store.read(KEY)]

    assert asyncio.run(run()) == [None, RECORD, None]
    assert "access" not in repr(RECORD)


@pytest.mark.parametrize("key", ["../x", "", "a/b", KEY + "0"])
def test_a_key_is_no_path(tmp_path: Path, key: str):
    with pytest.raises(ValueError, match="key"):
        asyncio.run(TokenStore(tmp_path).write(key, RECORD))


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path):
    path = tmp_path / "a.lock"

    async def run() -> int:
        inside = most = 0

        async def one() -> None:
            nonlocal inside, most
            async with hold_lock(path, 30):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(one() for _ in range(5)))
        return most

    assert asyncio.run(run()) == 1
    held = try_lock_and_start_cleanup(path)
    assert held is not None
    assert try_lock_and_start_cleanup(path) is None

    async def wait() -> None:
        async with hold_lock(path, 0):
            raise AssertionError

    with pytest.raises(TimeoutError, match=r"a\.lock"):
        asyncio.run(wait())
    held()
    again = try_lock_and_start_cleanup(path)
    assert again is not None
    again()


class Ring:
    """A keyring as the package of that name has them."""

    priority = 5.0

    def __init__(self, most: int = 10_000) -> None:
        self.kept: dict[str, str] = {}
        self.most = most

    def get_password(self, _service: str, key: str) -> str | None:
        return self.kept.get(key)

    def set_password(self, _service: str, key: str, text: str) -> None:
        if len(text) > self.most:
            raise RuntimeError(f"too long: {text}")
        self.kept[key] = text

    def delete_password(self, _service: str, key: str) -> None:
        del self.kept[key]


async def written_and_read(store: TokenStore, record: TokenRecord) -> TokenRecord | None:
    await store.write(KEY, record)
    return await store.read(KEY)


async def deleted_and_read(store: TokenStore) -> TokenRecord | None:
    await store.delete(KEY)
    await store.delete(KEY)
    return await store.read(KEY)


def test_a_keyring_is_used_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ring = Ring()
    module = types.ModuleType("keyring")
    module.get_keyring = lambda: ring  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", module)
    for storage in ("auto", "keyring"):
        store = TokenStore(tmp_path, find_keyring(storage))
        assert asyncio.run(written_and_read(store, RECORD)) == RECORD
        assert list(ring.kept) == [KEY]
        assert asyncio.run(deleted_and_read(store)) is None
        assert ring.kept == {}
    assert find_keyring("files") is None
    ring.priority = 0.0
    assert find_keyring("auto") is None
    with pytest.raises(OSError, match="storage"):
        find_keyring("keyring")
    assert not list(tmp_path.iterdir())


def test_what_a_keyring_refuses_is_in_files(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    ring = Ring(most=len(RECORD.model_dump_json()))
    store, longer = TokenStore(tmp_path, ring), RECORD.model_copy(update={"access_token": "much-longer-token"})
    asyncio.run(store.write(KEY, RECORD))
    assert asyncio.run(written_and_read(store, longer)) == longer
    assert ring.kept == {}
    assert "longer" not in caplog.text
    asyncio.run(store.write(KEY, RECORD))
    assert not list(tmp_path.iterdir())
    assert asyncio.run(store.read(KEY)) == RECORD
