"""The timers of one run on an event loop whose time passes only when it would sleep."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode.execution.runner import TimerQueue
from codemode.protocol.events import CallSettled
from codemode.protocol.ledger import Fulfilled, LedgerEntry

START_MS = 1_000_000
# Of a second, in milliseconds: their sums are exact, so that two moments are equal or a clock tick apart.
EIGHTHS = st.integers(0, 20).map(lambda number: 125 * number)


class QuickLoop(asyncio.SelectorEventLoop):
    """Its clock goes on by what it would have slept."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        select = self._selector.select  # type: ignore[attr-defined]

        def passing(timeout: float | None = None) -> Any:
            assert timeout is not None, "nothing is left to happen"
            self.now += timeout
            return select(0)

        self._selector.select = passing  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now


def entry(number: int, delay: int) -> LedgerEntry:
    return LedgerEntry(number, "timer", "setTimeout", str(delay))


def fired_of(main: Any) -> tuple[list[CallSettled], list[float]]:
    """Run ``main(timers, loop)``, then until all is quiet; what fired, and after how many milliseconds."""
    loop = QuickLoop()
    fired: list[CallSettled] = []
    times: list[float] = []

    def tell(settled: CallSettled) -> None:
        fired.append(settled)
        times.append((loop.now - 100) * 1000)

    async def run() -> None:
        timers = TimerQueue(lambda: START_MS + int((loop.now - 100) * 1000), tell)
        await main(timers)
        await asyncio.sleep(10)
        timers.close()

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    return fired, times


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200))
def test_timers_of_one_moment_fire_by_their_delay_then_by_their_request(delays: list[int]):
    async def main(timers: TimerQueue) -> None:
        timers.start_timers([entry(number, delay) for number, delay in enumerate(delays, 1)])

    fired, times = fired_of(main)
    expected = sorted(range(1, len(delays) + 1), key=lambda number: (delays[number - 1], number))
    assert [one.id for one in fired] == expected
    assert all(one.outcome == Fulfilled(None) and one.error is None for one in fired)
    for one, at in zip(fired, times, strict=True):
        delay = delays[one.id - 1]
        assert delay - 0.001 <= at <= delay + 1
        assert one.now_ms >= START_MS + delay


@given(st.lists(st.tuples(EIGHTHS, EIGHTHS, st.booleans()), min_size=1, max_size=60))
def test_timers_of_other_moments_fire_when_they_are_due_and_withdrawn_ones_never(plan: list[tuple[int, int, bool]]):
    due: dict[int, float] = {}

    async def main(timers: TimerQueue) -> None:
        loop = asyncio.get_running_loop()
        for number, (wait, delay, stops) in enumerate(plan, 1):
            await asyncio.sleep(wait / 1000)
            timers.start_timers([entry(number, delay)])
            if stops:
                timers.stop_timer(number)
            else:
                due[number] = loop.time() + delay / 1000

    fired, _ = fired_of(main)
    assert [one.id for one in fired] == sorted(due, key=lambda number: (due[number], number))


def test_what_a_program_is_told_of_the_time_is_not_behind_though_the_hosts_clock_goes_back():
    fired: list[CallSettled] = []
    shown = iter([START_MS, START_MS - 5000])

    async def main() -> None:
        timers = TimerQueue(lambda: next(shown), fired.append)
        timers.start_timers([entry(1, 1)])
        await asyncio.sleep(1)
        timers.close()

    loop = QuickLoop()
    loop.run_until_complete(main())
    loop.close()
    assert [one.now_ms for one in fired] == [START_MS + 1]


@pytest.mark.parametrize("ends", [1, 5, 100])
def test_nothing_fires_once_all_are_closed(ends: int):
    fired: list[int] = []

    async def main() -> None:
        def tell(settled: CallSettled) -> None:
            fired.append(settled.id)
            if len(fired) == ends:
                timers.close()

        timers = TimerQueue(lambda: START_MS, tell)
        timers.start_timers([entry(number, 5) for number in range(1, 101)])
        await asyncio.sleep(1)

    loop = QuickLoop()
    loop.run_until_complete(main())
    loop.close()
    assert fired == list(range(1, ends + 1))


def test_many_that_are_due_leave_others_their_turn():
    order: list[Any] = []

    async def main() -> None:
        timers = TimerQueue(lambda: START_MS, lambda settled: order.append(settled.id))
        timers.start_timers([entry(number, 0) for number in range(1, 1001)])
        while len(order) < 1000:
            order.append("other")
            await asyncio.sleep(0)
        timers.close()

    loop = QuickLoop()
    loop.run_until_complete(main())
    loop.close()
    numbers = [one for one in order if one != "other"]
    assert numbers[:1000] == list(range(1, 1001))
    assert order.count("other") > 5
