"""What a thread had when the process forked is free in the child: every lock of the package, and the collector."""

from __future__ import annotations

import ast
import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_children import held_elsewhere, in_a_child
from suite import each_row

from codemode.host import forks, steps
from codemode.host.forks import create_fork_safe_lock, create_fork_safe_rlock
from codemode.host.imports import make_forks_wait_for_lock

TREE = Path(__file__).parents[3]
ROOT = TREE / "src" / "codemode"
KINDS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier", "allocate_lock"}
# What holds one that is made otherwise, and why that may be.
EXCEPTIONS = {
    "host/forks.py": (["Lock", "RLock"], "makes those that are free in a child"),
    "host/imports.py": (["RLock"], "a fork waits until it is free"),
    "host/threads.py": (["Lock"], "a thread waits at it for its turn, and neither is in the child"),
    "host/job_threads.py": (["Lock"], "a thread waits at it for a job; the child has other threads"),
    "stores/postgres.py": (["Event"], "of one thread alone, which is not in the child"),
    "stores/change_notifier.py": (["Event"], "likewise"),
    "stores/sqlite.py": (["Lock", "Lock"], "a child has to know whether somebody had it, and makes its own"),
    "../../integrations/gateway/src/codemode_gateway/gateway/stdio.py": (
        ["Event", "Lock", "Semaphore"],
        "of the gateway's process, over its standard streams",
    ),
    "testing/fake_worker.py": (["Event"], "of a thread that stands for a process in tests"),
}
SOURCES = [
    path
    for folder in [ROOT, *(TREE / "integrations").glob("*/src")]
    for path in sorted(folder.rglob("*.py"))
    if ROOT / "guest" not in path.parents  # a worker has one thread
]


def locks_in(tree: ast.AST) -> Iterator[str]:
    """Yield the kinds of locks that a source makes, or lets be made. What stands in annotations makes none."""
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if isinstance(getattr(node, field, None), ast.AST):
                setattr(node, field, None)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("threading", "_thread"):
            yield from (alias.name for alias in node.names if alias.name in KINDS)
        elif isinstance(node, ast.Attribute) and node.attr in KINDS and ast.unparse(node.value) != "asyncio":
            yield node.attr


@each_row(
    "text",
    [
        "import threading\nlock = threading.Lock()",
        "import threading as t\nclass A:\n    def __init__(self) -> None:\n        self.a: t.Lock = t.Lock()",
        "from threading import Lock as L",
        "gate: threading.Lock = field(default_factory=threading.Lock)",
        "import _thread\nlock = _thread.allocate_lock()",
    ],
)
def test_a_lock_is_found_in_a_source(text: str):
    assert len([*locks_in(ast.parse(text))]) == 1


def test_what_makes_no_lock_is_none():
    text = "def take(lock: threading.Lock) -> threading.RLock: ...\nasyncio.Lock()\nlocks: list[threading.Lock] = []"
    assert [*locks_in(ast.parse(text))] == []


def test_every_lock_is_free_in_a_forked_child_or_there_is_a_reason():
    assert len(SOURCES) > 300
    texts = {str(path): path.read_text(encoding="utf-8") for path in SOURCES}
    naming = {name: text for name, text in texts.items() if any(kind in text for kind in KINDS)}
    found = {name: sorted(locks_in(ast.parse(text))) for name, text in naming.items()}
    known = {str((ROOT / name).resolve()): kinds for name, (kinds, _) in EXCEPTIONS.items()}
    assert {name: kinds for name, kinds in found.items() if kinds} == known, (
        "create_fork_safe_lock() of codemode.host.forks or codemode.plugins makes one that no fork leaves locked"
    )


@pytest.mark.parametrize("make", [create_fork_safe_lock, create_fork_safe_rlock])
def test_what_another_thread_had_is_free_in_the_child_and_still_had_in_the_parent(make: Callable[[], Any]):
    lock = make()

    def use() -> None:
        assert lock.acquire(timeout=10)
        lock.release()
        assert lock.acquire(blocking=False)

    with held_elsewhere([lock]):
        in_a_child(use)
        in_a_child(lambda: in_a_child(use))
        assert not lock.acquire(blocking=False)
    assert lock.acquire(blocking=False)


def test_one_that_was_free_is_free():
    lock, reentrant = create_fork_safe_lock(), create_fork_safe_rlock()

    def use() -> None:
        with lock, reentrant, reentrant:
            assert lock.locked()

    in_a_child(use)


def test_a_thread_that_forks_with_a_reentrant_one_has_it_in_the_child():
    lock = create_fork_safe_rlock()

    def use() -> None:
        got: list[bool] = []
        thread = threading.Thread(target=lambda: got.append(lock.acquire(blocking=False)))
        thread.start()
        thread.join(60)
        assert got == [False]
        lock.release()
        lock.release()
        with pytest.raises(RuntimeError):
            lock.release()

    with lock, lock:
        in_a_child(use)


def test_what_begins_anew_finds_its_locks_free():
    class Begins:
        def __init__(self) -> None:
            self.lock, self.begun = create_fork_safe_lock(), 0
            forks.register_fork_reset(self)

        def after_fork(self) -> None:
            self.begun += self.lock.acquire(blocking=False)

    one = Begins()

    def use() -> None:
        assert one.begun == 1

    with held_elsewhere([one.lock]):
        in_a_child(use)
    assert one.begun == 0


def test_no_lock_is_kept_from_ending():
    before = len(forks._locks), len(forks._reentrant_locks)
    for _ in range(100):
        create_fork_safe_lock()
        create_fork_safe_rlock()
    gc.collect()
    assert (len(forks._locks), len(forks._reentrant_locks)) <= before


@pytest.mark.parametrize("ends_in_time", [True, False])
def test_a_fork_waits_for_what_is_loaded_and_not_for_ever(ends_in_time: bool):
    """In a process of its own, where hooks stay: they are called from the last one on."""

    def host() -> None:
        lock, forking, forked, loaded = (
            create_fork_safe_rlock(),
            threading.Event(),
            threading.Event(),
            threading.Event(),
        )
        make_forks_wait_for_lock(lock, 60.0 if ends_in_time else 0.0)
        os.register_at_fork(before=forking.set)
        has_it = threading.Event()

        def load() -> None:
            with lock:
                has_it.set()
                assert (forking if ends_in_time else forked).wait(60)
                loaded.set()

        def use() -> None:
            assert loaded.is_set() == ends_in_time
            assert lock.acquire(timeout=10)
            lock.release()

        thread = threading.Thread(target=load)
        thread.start()
        assert has_it.wait(60)
        in_a_child(use)
        forked.set()
        thread.join(60)
        assert lock.acquire(blocking=False)

    in_a_child(host)


def _collecting_elsewhere(work: Callable[[], None]) -> None:
    """Do something while another thread has switched the collector off."""
    inside, done = threading.Event(), threading.Event()

    def build() -> None:
        inside.set()
        done.wait(60)

    thread = threading.Thread(target=steps.run_without_gc, args=(build,))
    thread.start()
    assert inside.wait(60)
    try:
        assert not gc.isenabled()
        work()
    finally:
        done.set()
        thread.join(60)


def _require_collector(*, on: bool = True) -> None:
    assert gc.isenabled() == on


def test_a_child_that_was_forked_while_the_collector_was_off_has_one():
    _collecting_elsewhere(lambda: in_a_child(lambda: (_require_collector(), in_a_child(_require_collector))))
    assert gc.isenabled()
    assert not steps._collector_users


def test_a_child_whose_only_thread_had_switched_it_off_has_one_afterwards():
    def child() -> None:
        done: list[int] = []

        def fork() -> None:
            in_a_child(_require_collector)
            done.append(1)

        steps.run_without_gc(fork)
        assert done
        _require_collector()

    in_a_child(child)


def test_a_child_of_a_host_that_has_switched_it_off_has_none():
    def host() -> None:
        gc.disable()
        steps.run_without_gc(lambda: in_a_child(lambda: _require_collector(on=False)))
        _require_collector(on=False)

    in_a_child(host)


def test_a_child_that_switches_it_off_itself_leaves_it_so_to_its_own():
    def child() -> None:
        gc.disable()
        in_a_child(lambda: _require_collector(on=False))

    _collecting_elsewhere(lambda: in_a_child(child))
    assert gc.isenabled()
