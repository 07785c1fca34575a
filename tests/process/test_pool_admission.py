"""Who may run in a pool, and in what order."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leftovers import PATIENCE_SECONDS
from pool_driver import Hold, PoolMaker, run
from waiting import until

from codemode import run_code_mode, set_max_workers
from codemode.errors import CodeModeConcurrencyError
from codemode.workers.lease import compute_worker_limit
from codemode.workers.pool import AvailableMemoryReader

pytestmark = pytest.mark.usefixtures("leaves_nothing")

_MEMORY = 64 << 20


@given(st.integers(0, 64), st.integers(1, 1 << 40), st.integers(0, 1 << 45))
def test_memory_based_limit_is_between_one_and_thirty_two(active: int, limit: int, available: int) -> None:
    assert 1 <= compute_worker_limit(active, limit, available) <= 32
    assert compute_worker_limit(active, limit, available) <= compute_worker_limit(active, limit, available + limit)


def test_memory_based_limit_counts_one_heap_and_48_mib_per_worker() -> None:
    per_worker = _MEMORY + (48 << 20)
    assert compute_worker_limit(0, _MEMORY, 3 * per_worker) == 3
    assert compute_worker_limit(2, _MEMORY, 3 * per_worker - 1) == 4


def test_available_memory_is_read_and_kept_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    available = AvailableMemoryReader()
    first = available()
    assert 1 << 20 < first < 1 << 50
    monkeypatch.setattr("codemode.workers.pool.read_available_memory_bytes", lambda: 7)
    assert available() == first


def test_default_limit_follows_memory(make_pool: PoolMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codemode.workers.pool.read_available_memory_bytes", lambda: 0)
    pool = make_pool()

    async def main() -> None:
        hold = Hold()
        task = await hold.start(pool)
        with pytest.raises(CodeModeConcurrencyError) as refused:
            await run_code_mode("return 1", {}, pool=pool)
        hold.release.set()
        assert await task == "released"
        assert refused.value.details == {"max_workers": 1}

    run(main)


def test_full_pool_refuses_at_once(make_pool: PoolMaker) -> None:
    pool = make_pool(max_workers=2)

    async def main() -> None:
        holds = [Hold(), Hold()]
        tasks = [await hold.start(pool) for hold in holds]
        assert pool.active == 2
        with pytest.raises(CodeModeConcurrencyError) as refused:
            await run_code_mode("return 1", {}, pool=pool)
        assert "after waiting" not in refused.value.message
        assert refused.value.code == "CODE_MODE_CONCURRENCY_LIMIT"
        assert refused.value.details == {"max_workers": 2}
        for hold in holds:
            hold.release.set()
        assert await asyncio.gather(*tasks) == ["released", "released"]
        assert pool.active == 0
        assert await run_code_mode("return 1", {}, pool=pool) == 1

    run(main)


def test_set_max_workers_holds_for_pools_without_a_cap_of_their_own(make_pool: PoolMaker) -> None:
    free, capped = make_pool(), make_pool(max_workers=2)

    async def main() -> None:
        holds = [Hold(), Hold()]
        tasks = [await holds[0].start(free), await holds[1].start(capped)]
        with pytest.raises(CodeModeConcurrencyError):
            await run_code_mode("return 1", {}, pool=free)
        assert await run_code_mode("return 1", {}, pool=capped) == 1
        for hold in holds:
            hold.release.set()
        await asyncio.gather(*tasks)

    set_max_workers(1)
    try:
        run(main)
    finally:
        set_max_workers(None)


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "2"])
def test_set_max_workers_refuses_nonsense(count: Any) -> None:
    with pytest.raises(ValueError, match="max_workers"):
        set_max_workers(count)


def test_waiting_is_served_in_order_of_arrival_and_cancelled_waiters_leave_at_once(make_pool: PoolMaker) -> None:
    pool = make_pool(max_workers=1, on_saturation="wait")

    async def main() -> None:
        hold, served = Hold(), list[int]()
        tools = {"mark": lambda number: served.append(number)}
        first = await hold.start(pool)
        tasks = [
            asyncio.create_task(run_code_mode(f"await tools.mark({{number: {number}}})", tools, pool=pool))
            for number in range(8)
        ]
        await until(lambda: sum(map(len, pool._slot_queue._waiting)) == 8)
        for number in (0, 3, 7):
            tasks[number].cancel()
        await asyncio.wait([tasks[number] for number in (0, 3, 7)])
        assert all(tasks[number].cancelled() for number in (0, 3, 7))
        assert not first.done()
        hold.release.set()
        await asyncio.gather(first, *(task for task in tasks if not task.cancelled()))
        assert served == [1, 2, 4, 5, 6]
        assert pool.active == 0

    run(main)


def test_waiting_ends_with_the_concurrency_error_after_its_time(make_pool: PoolMaker) -> None:
    pool = make_pool(max_workers=1, on_saturation="wait", wait_timeout_ms=50)

    async def main() -> None:
        hold = Hold()
        task = await hold.start(pool)
        with pytest.raises(CodeModeConcurrencyError, match="after waiting 50 ms") as refused:
            await run_code_mode("return 1", {}, pool=pool)
        assert refused.value.details == {"max_workers": 1}
        hold.release.set()
        await task
        assert await run_code_mode("return 1", {}, pool=pool) == 1

    run(main)


def test_waiters_of_several_threads_share_one_queue(make_pool: PoolMaker) -> None:
    pool = make_pool(max_workers=2, on_saturation="wait")
    results: list[int] = []

    def work(number: int) -> None:
        async def main() -> list[int]:
            return await asyncio.gather(*(run_code_mode(f"return {number}", {}, pool=pool) for _ in range(5)))

        results.extend(run(main))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE_SECONDS)
    assert sorted(results) == [number for number in range(6) for _ in range(5)]
    assert pool.active == 0


def test_a_waiter_whose_loop_is_gone_holds_up_nobody(make_pool: PoolMaker) -> None:
    pool = make_pool(max_workers=1, on_saturation="wait")
    abandoned = asyncio.new_event_loop()

    async def main() -> None:
        hold = Hold()
        task = await hold.start(pool)
        waiting = pool._slot_queue.acquire(_MEMORY, None)
        coroutine = abandoned.create_task(waiting)
        await asyncio.to_thread(lambda: (abandoned.call_soon(abandoned.stop), abandoned.run_forever()))
        assert sum(map(len, pool._slot_queue._waiting)) == 1
        coroutine._log_destroy_pending = False  # type: ignore[attr-defined]
        abandoned.close()
        hold.release.set()
        await task
        assert await run_code_mode("return 1", {}, pool=pool) == 1

    run(main)
