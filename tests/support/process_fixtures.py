"""Fixtures of tests that start processes: each conftest of such tests imports them all."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line_shop import SHOP
from http_server import HttpServer

from codemode import PoolOptions, WorkerPool
from codemode.workers import pool as pools

__all__ = ["_shared_pool", "folder", "left_by_files", "nothing_left", "pool", "server"]

PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="session")
def _shared_pool(left_by_files: Any) -> Iterator[WorkerPool]:
    with WorkerPool(PoolOptions(max_workers=2)) as pool:
        yield pool


@pytest.fixture
def pool(_shared_pool: WorkerPool) -> Iterator[WorkerPool]:
    """The same two workers for all tests, for a pool takes longer to start than most programs run.

    No test may keep one. Tests of pools and of what starts workers make their own.
    """
    yield _shared_pool
    assert _shared_pool.active == 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a command: tools for programs in shop.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@pytest.fixture
def server() -> Iterator[HttpServer]:
    running = HttpServer().start()
    yield running
    running.stop()


def children() -> set[str]:
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended in between
            found.update((task / "children").read_text(encoding="ascii").split())
    return found


def channels() -> dict[str, int]:
    """The sockets and pipes through which workers are reached, and their descriptors."""
    found: dict[str, int] = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(entry.readlink())
            if target.startswith(("socket:", "pipe:")):
                found[target] = int(entry.name)
    return found


def default_spares() -> set[str]:
    """The sockets of spare workers of the default pool, which any later test may take."""
    if pools._default_pool is None:
        return set()
    spares = {worker.process.channel.fileno() for worker in pools._default_pool.supply.inventory.spares}
    return {name for name, descriptor in channels().items() if descriptor in spares}


def describe_open(name: str) -> str:
    """Tell where a socket leads: to a database, for instance. A worker's has no names."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(channels().get(name, -1))) as end:
        return f"{name} {end.family.name} {end.getsockname()!r} to {end.getpeername()!r}"
    return name


@pytest.fixture(scope="session")
def left_by_files() -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """What is open after each file of process tests, and that file: at the end of all, none of it is there."""
    descriptors, processes = dict[str, str](), dict[str, str]()
    yield descriptors, processes
    gc.unfreeze()  # what a file's last test held was frozen with it, and would stay open for good
    if pools._default_pool is not None:
        pools._default_pool.close()
        pools._default_pool = None

    def find_left() -> dict[str, str]:
        open_then = processes | descriptors
        return {name: open_then[name] for name in {*children(), *channels()} & open_then.keys()}

    pause, deadline = 0.01, time.monotonic() + PATIENCE_SECONDS
    while left := find_left():
        assert time.monotonic() < deadline, {describe_open(name): file for name, file in left.items()}
        gc.collect()  # a loop of exec's own, of which the last pair was dropped, is garbage when its thread has ended
        time.sleep(pause := 2 * pause)  # a look for garbage among all that the tests imported takes a second


def wait_while(is_left: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while is_left() and time.monotonic() < deadline:
        time.sleep(0.01)


def active_runs() -> int:
    """Count the slots of the default pool that are taken."""
    return pools._default_pool.active if pools._default_pool is not None else 0


@pytest.fixture(scope="module", autouse=True)
def nothing_left(
    request: pytest.FixtureRequest, left_by_files: tuple[dict[str, str], dict[str, str]]
) -> Iterator[None]:
    """Tell what a file leaves from what tests of other folders do, which run in the same process.

    No file may leave a slot of the default pool taken. A pair of exec and wait gives its own back a little after it is
    dropped.
    """
    descriptors, processes, active = channels(), children(), active_runs()
    yield
    if active_runs() > active:
        gc.collect()
        wait_while(lambda: active_runs() > active)
        assert active_runs() <= active
    left = channels().keys() - descriptors - default_spares()
    left_by_files[0].update(dict.fromkeys(left, request.node.nodeid))
    left_by_files[1].update(dict.fromkeys(children() - processes, request.node.nodeid))
