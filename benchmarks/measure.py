"""Timing: interleaved rounds, medians, ratios."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Samples:
    """Milliseconds per run, one value for each round."""

    values: list[float] = field(default_factory=list[float])

    def add(self, seconds: float, runs: int) -> None:
        """Add one round's measurement."""
        self.values.append(seconds * 1000 / runs)

    @property
    def median(self) -> float:
        """The median in milliseconds."""
        return statistics.median(self.values)

    def percentile(self, percent: int) -> float:
        """Return a percentile in milliseconds."""
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]

    @property
    def spread(self) -> float:
        """How far the middle half lies apart, as a share of the median."""
        low, _, high = statistics.quantiles(self.values, n=4)
        return (high - low) / self.median


async def timed(work: Callable[[], Awaitable[object]], runs: int, samples: Samples, gap_seconds: float = 0) -> None:
    """Time ``runs`` runs of an async function, with an untimed gap before each of them."""
    passed = 0.0
    for _ in range(runs):
        await asyncio.sleep(gap_seconds)
        started = time.perf_counter()
        await work()
        passed += time.perf_counter() - started
    samples.add(passed, runs)


def timed_sync(work: Callable[[], object], runs: int, samples: Samples) -> None:
    """Time ``runs`` runs of a function."""
    started = time.perf_counter()
    for _ in range(runs):
        work()
    samples.add(time.perf_counter() - started, runs)
