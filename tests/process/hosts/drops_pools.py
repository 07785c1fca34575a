"""A host that drops its pools and closes none: by their last name, in a circle, on a loop, in a child. Nothing is left.

Arguments: programs of a worker, start method.
"""

import asyncio
import gc
import sys
import threading
import time
from pathlib import Path

sys.path.extend([str(Path(__file__).parents[2] / "support"), str(Path(__file__).parents[1])])
from forked_children import in_a_child
from leftovers import PATIENCE_SECONDS, children, descriptors

import codemode

OPTIONS = {"max_workers": 2, "programs_per_worker": int(sys.argv[1]), "start_method": sys.argv[2]}


def used_pool() -> codemode.WorkerPool:
    pool = codemode.WorkerPool(OPTIONS)
    assert codemode.run_code_mode_sync("return 1", [], pool=pool) == 1
    return pool


def await_nothing(processes: set[int], opened: dict[str, str]) -> None:
    """Wait, for it is a thread that ends them. Threads that have been idle end as well, with what they have open."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while children() != processes or descriptors() != opened:
        assert time.monotonic() < deadline, (children() - processes, descriptors().items() - opened.items())
        time.sleep(0.001)


def by_its_last_name() -> None:
    used_pool()


def with_a_share() -> None:
    share = used_pool().share("tenant", max_workers=1)
    assert codemode.run_code_mode_sync("return 2", [], pool=share) == 2


def in_a_circle() -> None:
    circle: list[object] = [used_pool()]
    circle.append(circle)
    del circle
    gc.collect()


def on_a_loop() -> None:
    async def main() -> None:
        pool = codemode.WorkerPool(OPTIONS)
        assert await codemode.run_code_mode("return 3", [], pool=pool) == 3
        del pool
        await asyncio.sleep(0)

    asyncio.run(main())


def with_a_run_that_nobody_ended() -> None:
    started = threading.Event()

    async def hangs() -> None:
        started.set()
        await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    task = loop.create_task(codemode.run_code_mode("return await tools.hangs()", [hangs], pool=used_pool()))
    while not started.is_set():
        loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()


def while_a_thread_is_started() -> None:
    """The garbage collector may come while `threading` has a lock that starting a thread takes."""
    pool = used_pool()
    with threading._active_limbo_lock:  # type: ignore[attr-defined]
        del pool


def that_were_closed() -> None:
    pool = used_pool()
    pool.close()


def that_were_never_used() -> None:
    before = threading.active_count()
    codemode.WorkerPool(OPTIONS)
    assert threading.active_count() == before


def in_a_forked_child() -> None:
    pools = [used_pool()]

    def drop() -> None:
        assert codemode.run_code_mode_sync("return 4", [], pool=pools[0]) == 4
        pools.clear()
        gc.collect()
        await_nothing(set(), opened)

    opened = {name: told for name, told in descriptors().items() if name in before}
    in_a_child(drop)
    assert codemode.run_code_mode_sync("return 5", [], pool=pools[0]) == 5
    pools.clear()


before = descriptors()
for way in (
    by_its_last_name,
    with_a_share,
    in_a_circle,
    on_a_loop,
    with_a_run_that_nobody_ended,
    while_a_thread_is_started,
    that_were_closed,
    that_were_never_used,
    in_a_forked_child,
):
    way()
    gc.collect()
    await_nothing(set(), before)
    before = descriptors()
at_the_end = used_pool()  # dropped with the interpreter
print("ok")
