"""A host whose pool is first used in a thread that ends; what was started in it outlives it. Argument: start method."""

import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import codemode


def use(number: int) -> None:
    assert codemode.run_code_mode_sync(f"return {number}", {}, pool=pool) == number


def use_until_spares_are_ready() -> None:
    use(1)
    deadline = time.monotonic() + 60
    while len(pool.supply.inventory.spares) < 2:  # by exec they are started in a thread of the pool
        assert time.monotonic() < deadline
        time.sleep(0.001)
    # A worker asks for its parent-death signal before it says hello.
    for spare in pool.supply.inventory.spares:
        assert select.select([spare.process.channel], [], [], 60)[0]


def zygotes() -> list[str]:
    # Children are listed under the thread that started them, or under another one when that has ended.
    found: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended in between
            found += (task / "children").read_text().split()
    return found


def in_threads(count: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


start_method = sys.argv[1]
pool = codemode.WorkerPool({"start_method": start_method, "max_workers": 32})
in_threads(1, use_until_spares_are_ready)
assert len(pool.supply.inventory.spares) == 2
before = zygotes()
for _ in range(2):
    use(1)
    assert not any(spare.process.is_dead() for spare in pool.supply.inventory.spares)
    in_threads(1, use_until_spares_are_ready)
    assert not any(spare.process.is_dead() for spare in pool.supply.inventory.spares)
in_threads(8, lambda: use(2))
if start_method == "fork":
    assert zygotes() == before, (before, zygotes())
    assert len(before) == 1, before
os.write(1, b"ok\n")
