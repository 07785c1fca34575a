"""Admission: who gets a slot, in what order, over threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row
from waiting import until, within

from codemode.errors import CodeModeConcurrencyError
from codemode.workers.lease import SlotQueue, compute_worker_limit
from codemode.workers.pool import AvailableMemoryReader

MIB = 1 << 20
_WAIT_SECONDS = 60.0


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    within(main(), _WAIT_SECONDS)


def admission(maximum: int = 1) -> SlotQueue:
    return SlotQueue(lambda _active, _memory: maximum)


def queue(slots: SlotQueue) -> int:
    return sum(map(len, slots._waiting))


@each_row(
    "active, memory_mib, available_mib, expected",
    [
        (0, 64, 0, 1),
        (0, 64, 111, 1),
        (0, 64, 112 * 2, 2),
        (0, 64, 112 * 3 - 1, 2),
        (3, 64, 112 * 2, 5),
        (3, 64, 0, 3),
        (0, 16, 64 * 32, 32),
        (0, 16, 64 * 33, 32),
        (31, 64, 112 * 9, 32),
        (40, 64, 0, 32),
        (0, 768, 16 * 1024, 20),
    ],
)
def test_how_many_workers_fit(active: int, memory_mib: int, available_mib: int, expected: int):
    assert compute_worker_limit(active, memory_mib * MIB, available_mib * MIB) == expected


@given(st.integers(0, 100), st.integers(1, 768 * MIB), st.integers(0, 1 << 50))
def test_at_least_one_and_at_most_32_workers_fit(active: int, memory: int, available: int):
    assert 1 <= compute_worker_limit(active, memory, available) <= 32
    assert compute_worker_limit(active, memory, available) <= compute_worker_limit(active, memory, available + MIB)


def test_available_memory_is_a_plausible_number():
    assert AvailableMemoryReader()() > MIB


def test_slots_are_taken_and_given_back():
    slots = admission(2)
    assert [slots.try_acquire(1) for _ in range(3)] == [True, True, False]
    slots.release()
    assert slots.active == 1
    assert slots.try_acquire(1)


def test_a_refusal_names_the_maximum():
    refusal = admission(3).create_busy_error(1)
    assert isinstance(refusal, CodeModeConcurrencyError)
    assert refusal.details == {"max_workers": 3}
    assert "50 ms" in admission().create_busy_error(1, 50).message


def test_slots_are_handed_out_in_order_of_arrival():
    slots = admission()
    order: list[int] = []

    async def invocation(number: int) -> None:
        await slots.acquire(1, None)
        order.append(number)
        assert slots.active == 1
        await asyncio.sleep(0)
        slots.release()

    async def main() -> None:
        await slots.acquire(1, None)
        tasks: list[asyncio.Task[None]] = []
        for number in range(20):
            tasks.append(asyncio.create_task(invocation(number)))
            await until(lambda number=number: queue(slots) == number + 1)
        slots.release()
        await asyncio.gather(*tasks)

    run(main)
    assert order == list(range(20))
    assert (slots.active, queue(slots)) == (0, 0)


def test_nobody_overtakes_those_who_wait():
    slots = admission()

    async def main() -> None:
        await slots.acquire(1, None)
        waiting = asyncio.create_task(slots.acquire(1, None))
        await until(lambda: queue(slots) == 1)
        slots.release()
        assert not slots.try_acquire(1)
        await waiting

    run(main)


def test_a_slot_that_comes_free_while_one_joins_the_queue_is_not_missed(monkeypatch: pytest.MonkeyPatch):
    slots = admission()
    assert slots.try_acquire(1)

    def full_just_before_a_slot_comes_free(*_wanted: int) -> bool:
        slots.release()
        return False

    monkeypatch.setattr(slots, "try_acquire", full_just_before_a_slot_comes_free)
    run(lambda: slots.acquire(1, 1_000))
    assert slots.active == 1


def test_waiting_ends_after_its_time():
    slots = admission()

    async def main() -> None:
        await slots.acquire(1, None)
        with pytest.raises(CodeModeConcurrencyError) as caught:
            await slots.acquire(1, 20)
        assert caught.value.details == {"max_workers": 1}
        assert queue(slots) == 0
        slots.release()
        await slots.acquire(1, 20)

    run(main)
    assert slots.active == 1


def test_a_cancelled_waiter_leaves_at_once_and_costs_nobody_a_slot():
    slots = admission()

    async def main() -> None:
        await slots.acquire(1, None)
        first, second = (asyncio.create_task(slots.acquire(1, None)) for _ in range(2))
        await until(lambda: queue(slots) == 2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert queue(slots) == 1
        slots.release()
        await second

    run(main)
    assert slots.active == 1


@pytest.mark.parametrize("timeout_ms", [None, 5_000])
def test_a_waiter_cancelled_just_as_it_gets_its_slot_gives_it_back(timeout_ms: int | None):
    slots = admission()

    async def main() -> None:
        await slots.acquire(1, None)
        for turns in range(6):
            waiting = asyncio.create_task(slots.acquire(1, timeout_ms))
            await until(lambda: queue(slots) == 1)
            slots.release()
            for _ in range(turns):
                await asyncio.sleep(0)
            was_done = waiting.done()
            waiting.cancel()
            try:
                await waiting
            except asyncio.CancelledError:
                await slots.acquire(1, 1_000)
            else:
                assert was_done, "the cancellation was swallowed"
            assert slots.active == 1

    run(main)


def test_a_waiter_whose_time_ends_just_as_it_gets_its_slot_has_it():
    slots = admission()

    async def main() -> None:
        for _ in range(30):
            await slots.acquire(1, None)
            waiting = asyncio.create_task(slots.acquire(1, 1))
            await asyncio.sleep(0.001)
            slots.release()
            try:
                await waiting
            except CodeModeConcurrencyError:
                assert slots.active == 0
            else:
                slots.release()
            assert (slots.active, queue(slots)) == (0, 0)

    run(main)


def test_the_one_who_waits_decides_how_much_memory_is_needed():
    small, large = 10, 50
    slots = SlotQueue(lambda _active, memory: 2 if memory == small else 1)

    async def main() -> None:
        await slots.acquire(small, None)
        await slots.acquire(small, None)
        first = asyncio.create_task(slots.acquire(large, None))
        await until(lambda: queue(slots) == 1)
        slots.release()  # room for a small one
        await asyncio.sleep(0)
        assert not first.done()
        second = asyncio.create_task(slots.acquire(small, None))
        await until(lambda: queue(slots) == 2)
        first.cancel()
        await second
        assert slots.active == 2

    run(main)


def test_a_waiter_whose_loop_is_gone_is_passed_over():
    slots = admission()
    assert slots.try_acquire(1)
    lost = asyncio.new_event_loop()
    task = lost.create_task(slots.acquire(1, None))
    lost.run_until_complete(asyncio.sleep(0))
    assert queue(slots) == 1
    lost.close()
    slots.release()
    assert (slots.active, queue(slots)) == (0, 0)
    assert slots.try_acquire(1)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # its loop was closed on purpose
    task.get_coro().close()  # type: ignore[union-attr]


def test_many_loops_in_many_threads_share_the_slots():
    slots = admission(3)
    lock = threading.Lock()
    inside, peak, done = 0, 0, 0

    async def invocation() -> None:
        nonlocal inside, peak, done
        await slots.acquire(1, int(_WAIT_SECONDS * 1000))
        with lock:
            inside += 1
            peak = max(peak, inside)
        await asyncio.sleep(0)
        with lock:
            inside -= 1
            done += 1
        slots.release()

    async def many() -> None:
        work: list[Awaitable[None]] = [invocation() for _ in range(40)]
        await asyncio.gather(*work)

    threads = [threading.Thread(target=run, args=(many,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_WAIT_SECONDS)
    assert (done, slots.active, queue(slots)) == (200, 0, 0)
    assert peak <= 3
