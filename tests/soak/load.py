"""Load: many invocations at once on few workers, from one loop and from several threads.

``python -m tests.soak.load [invocations]`` prints the figures.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time
from typing import Any

from tests.support.leftovers import nothing_left
from tests.support.waiting import until

from codemode import WorkerPool, run_code_mode
from codemode.workers.lease import SlotQueue
from codemode.workers.pool import WorkerRequest

WORKERS, THREADS = 4, 8
WAIT_SECONDS = 600.0
_WORKER_MEMORY_BYTES = 64 << 20


class WatchedPool(WorkerPool):
    """Notes who came when, and who got a slot when."""

    def __init__(self, **settings: Any) -> None:
        super().__init__({"on_saturation": "wait", "max_workers": WORKERS, **settings})
        self._arrivals = itertools.count()
        self.admitted: list[int] = []
        self.most_active = 0

    async def acquire_slots(self, wanted: WorkerRequest, wait_timeout_ms: int | None) -> tuple[SlotQueue, ...]:
        arrival = next(self._arrivals)
        admissions = await super().acquire_slots(wanted, wait_timeout_ms)
        self.admitted.append(arrival)
        self.most_active = max(self.most_active, self.active)
        return admissions


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


async def many(pool: WorkerPool, count: int) -> list[Any]:
    """Start them all at once, and return what they returned."""
    program = "return await tools.double({ number: %d })"
    return await asyncio.gather(*(run_code_mode(program % number, [double], pool=pool) for number in range(count)))


def run_at_once(count: int) -> WatchedPool:
    """Many at once on one loop. Raises AssertionError unless all complete, and in order of arrival."""
    with nothing_left():
        pool = WatchedPool()
        try:
            results = asyncio.run(asyncio.wait_for(many(pool, count), WAIT_SECONDS))
            assert pool.active == 0
        finally:
            pool.close()
    assert results == [2 * number for number in range(count)]
    assert pool.admitted == sorted(pool.admitted)
    assert pool.most_active <= WORKERS
    return pool


def run_from_threads(count: int) -> None:
    """As many from each of several threads, each with a loop of its own. Raises AssertionError unless all complete."""
    results: list[list[Any]] = []
    with nothing_left():
        pool = WatchedPool()

        def work() -> None:
            results.append(asyncio.run(asyncio.wait_for(many(pool, count), WAIT_SECONDS)))

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(WAIT_SECONDS)
            assert pool.active == 0
        finally:
            pool.close()
    assert results == [[2 * number for number in range(count)]] * THREADS
    assert len(pool.admitted) == THREADS * count


async def cancel_waiting(count: int, cancelled: int) -> float:
    """Fill the pool with calls that last, let many wait, cancel some, and let the rest finish.

    Returns the seconds in which the cancelled ones were gone, while every slot was still taken.
    """
    pool = WatchedPool()
    release = asyncio.Event()
    holding = asyncio.Semaphore(0)

    async def hold() -> str:
        holding.release()
        await release.wait()
        return "released"

    try:
        holders = [asyncio.create_task(run_code_mode("return await tools.hold()", [hold], pool=pool))
                   for _ in range(WORKERS)]  # fmt: skip
        for _ in range(WORKERS):
            await asyncio.wait_for(holding.acquire(), WAIT_SECONDS)
        tasks = [asyncio.create_task(run_code_mode(f"return {number}", (), pool=pool)) for number in range(count)]
        await until(lambda: sum(map(len, pool._slot_queue._waiting)) == count)
        leaving = tasks[:: max(1, count // cancelled)][:cancelled]
        started = time.monotonic()
        for task in leaving:
            task.cancel()
        await asyncio.wait(leaving, timeout=WAIT_SECONDS)
        seconds = time.monotonic() - started
        assert all(task.cancelled() for task in leaving)
        assert not any(holder.done() for holder in holders)
        assert sum(map(len, pool._slot_queue._waiting)) == count - len(leaving)
        release.set()
        staying = [task for task in tasks if task not in leaving]
        assert await asyncio.gather(*staying) == [number for number in range(count) if tasks[number] in staying]
        assert await asyncio.gather(*holders) == ["released"] * WORKERS
        assert pool.active == 0
    finally:
        pool.close()
    return seconds


def main() -> None:
    """Run it long, and print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    started = time.monotonic()
    pool = run_at_once(count)
    seconds = time.monotonic() - started
    print(f"load: {count} invocations at once on {WORKERS} workers, {seconds:.1f} s ({count / seconds:.0f} a second)")
    print(f"  completed          {len(pool.admitted)}, in order of arrival, never more than {pool.most_active} at once")
    started = time.monotonic()
    run_from_threads(count // THREADS)
    print(
        f"  from threads       {count // THREADS} from each of {THREADS} loops: all, {time.monotonic() - started:.1f} s"
    )
    gone = asyncio.run(cancel_waiting(count, count // 10))
    print(
        f"  cancelled          {count // 10} of {count} that waited, gone in {gone * 1000:.0f} ms; the rest completed"
    )


if __name__ == "__main__":
    main()
