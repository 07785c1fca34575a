"""Files of users who are gone do not stay for ever: what nobody has used for long is removed, and nothing else is."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import state_files
from codemode_gateway.config.model import ServerConfig
from codemode_gateway.oauth import token_store
from codemode_gateway.oauth.token_store import try_lock_and_start_cleanup
from codemode_gateway.state_files import UNUSED_SECONDS, start_cleanup_if_due
from codemode_gateway.upstreams import tool_listing
from codemode_gateway.upstreams.tool_listing import ListCache, Listing

SERVER = ServerConfig("s", "stdio", command="x")
KEY, OTHER = "0" * 40, "1" * 40
LONG = UNUSED_SECONDS + 3_600
posix = pytest.mark.skipif(os.name != "posix", reason="an open file is removed")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look when a test says so, and not in a thread."""
    monkeypatch.setattr(state_files, "_last_cleanups", {})
    monkeypatch.setattr(state_files.BackgroundThreads, "submit", lambda _self, work: work())


def unused(path: Path, seconds: float = LONG) -> Path:
    """Make a file as if nobody had used it for so long."""
    path.touch()
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def there(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def written(folder: Path, principal: str) -> Path:
    before = there(folder) if folder.exists() else set()
    asyncio.run(ListCache(folder, principal).write(SERVER, Listing()))
    (name,) = there(folder) - before
    return folder / name


def test_lists_of_users_who_are_gone_are_removed_when_another_is_written(tmp_path: Path):
    gone, stays = written(tmp_path, "gone"), written(tmp_path, "stays")
    left = unused(tmp_path / f".{'a' * 64}.4711.0123abcd")
    own = [unused(tmp_path / name) for name in ("notes.json", f"{'a' * 63}.json", ".hidden", f".{'a' * 64}.x.y")]
    unused(gone)
    unused(stays, UNUSED_SECONDS - 3_600)
    state_files._last_cleanups.clear()
    new = written(tmp_path, "new")
    assert there(tmp_path) == {one.name for one in (stays, new, *own)}
    assert left.name not in there(tmp_path)


def test_a_list_that_somebody_reads_stays(tmp_path: Path):
    kept = unused(written(tmp_path, "me"))
    assert asyncio.run(ListCache(tmp_path, "me").read(SERVER)) is not None
    tool_listing.remove_unused_lists(tmp_path)
    assert kept.name in there(tmp_path)


def test_a_folder_is_looked_through_once_a_day_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    looked: list[Path] = []
    for _ in range(3):
        start_cleanup_if_due(tmp_path, looked.append)
    assert looked == [tmp_path]
    later = time.monotonic() + 90_000
    monkeypatch.setattr(state_files.time, "monotonic", lambda: later)
    start_cleanup_if_due(tmp_path, looked.append)
    assert looked == [tmp_path, tmp_path]


def test_a_folder_that_cannot_be_looked_through_costs_nothing_else(tmp_path: Path):
    start_cleanup_if_due(tmp_path / "nowhere", token_store.remove_unused_lock_and_sign_in_files)
    start_cleanup_if_due(tmp_path / "nowhere else", tool_listing.remove_unused_lists)


def test_locks_of_users_who_are_gone_are_removed_when_another_is_taken_and_tokens_stay(tmp_path: Path):
    gone = [unused(tmp_path / f"{KEY}{end}") for end in (".lock", ".browser.lock", ".url", ".brought")]
    stays = [unused(tmp_path / name) for name in (f"{KEY}.json", "own.lock", f"{KEY}.lock.lock", "x.url")]
    recent = unused(tmp_path / f"{OTHER}.lock", UNUSED_SECONDS - 3_600)
    give_back = try_lock_and_start_cleanup(tmp_path / f"{OTHER}.browser.lock")
    assert give_back is not None
    give_back()
    assert there(tmp_path) == {recent.name, f"{OTHER}.browser.lock", *(one.name for one in stays)}
    assert not there(tmp_path) & {one.name for one in gone}


@posix
def test_a_lock_that_somebody_holds_or_has_just_had_is_not_removed(tmp_path: Path):
    path = unused(tmp_path / f"{KEY}.lock")
    give_back = try_lock_and_start_cleanup(path)
    assert give_back is not None
    unused(path)
    token_store.remove_unused_lock_and_sign_in_files(tmp_path)
    assert path.exists()
    assert try_lock_and_start_cleanup(path) is None
    give_back()
    give_back = try_lock_and_start_cleanup(path)  # which is a use of it
    assert give_back is not None
    give_back()
    token_store.remove_unused_lock_and_sign_in_files(tmp_path)
    assert path.exists()


def before_the_first_lock(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Do something once, between opening a file and locking it."""
    import fcntl

    real = fcntl.flock

    def lock(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        work()
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", lock)


@posix
def test_a_lock_that_is_removed_while_somebody_takes_it_is_taken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = unused(tmp_path / f"{KEY}.lock")
    others: list[Any] = []

    def remove_and_take() -> None:
        token_store.remove_unused_lock_and_sign_in_files(tmp_path)
        others.append(try_lock_and_start_cleanup(path))

    before_the_first_lock(monkeypatch, remove_and_take)
    assert try_lock_and_start_cleanup(path) is None
    assert others[0] is not None
    others[0]()
    mine = try_lock_and_start_cleanup(path)
    assert mine is not None
    mine()


@posix
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_lock_that_somebody_takes_while_it_is_being_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made_anew: bool
):
    path = unused(tmp_path / f"{KEY}.lock")
    taken: list[Any] = []

    def take() -> None:
        if is_made_anew:  # another process has removed it as well
            path.unlink()
        taken.append(try_lock_and_start_cleanup(path))
        unused(path)

    before_the_first_lock(monkeypatch, take)
    token_store.remove_unused_lock_and_sign_in_files(tmp_path)
    assert taken[0] is not None
    assert path.exists()
    assert try_lock_and_start_cleanup(path) is None
    taken[0]()
