"""Timing: interleaved rounds, medians, ratios."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Samples:
    """Milliseconds of every run, by round."""

    rounds: list[list[float]] = field(default_factory=list[list[float]])

    def add(self, milliseconds: list[float]) -> None:
        """Add one round."""
        self.rounds.append(milliseconds)

    @property
    def median(self) -> float:
        """The median of the rounds' medians."""
        return statistics.median(self._round_medians())

    @property
    def tail(self) -> float:
        """The 95th percentile of all runs over their median."""
        runs = sorted(one for values in self.rounds for one in values)
        return runs[min(len(runs) - 1, len(runs) * 95 // 100)] / statistics.median(runs)

    @property
    def spread(self) -> float:
        """How far the middle half of the rounds lies apart, as a share of the median."""
        medians = self._round_medians()
        if len(medians) < 2:
            return 0.0
        low, _, high = statistics.quantiles(medians, n=4)
        return (high - low) / self.median

    def _round_medians(self) -> list[float]:
        return [statistics.median(values) for values in self.rounds]


async def timed(work: Callable[[], Awaitable[object]], runs: int, gap_seconds: float = 0) -> list[float]:
    """Return the milliseconds of each run of an async function, with an untimed gap before each of them."""
    taken: list[float] = []
    for _ in range(runs):
        await asyncio.sleep(gap_seconds)
        started = time.perf_counter()
        await work()
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def timed_sync(work: Callable[[], object], runs: int, gap_seconds: float = 0) -> list[float]:
    """Return the milliseconds of each run of a function, with an untimed gap before each of them."""
    taken: list[float] = []
    for _ in range(runs):
        time.sleep(gap_seconds)
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1000)
    return taken


async def runs_per_second(work: Callable[[], Awaitable[object]], in_flight: int, seconds: float) -> float:
    """Return how many runs end in a second when ``in_flight`` of them are always under way, after as many untimed."""
    await asyncio.gather(*(work() for _ in range(in_flight)))
    ends = time.perf_counter() + seconds

    async def keep_going() -> int:
        done = 0
        while time.perf_counter() < ends:
            await work()
            done += 1
        return done

    started = time.perf_counter()
    counts = await asyncio.gather(*(keep_going() for _ in range(in_flight)))
    return sum(counts) / (time.perf_counter() - started)
