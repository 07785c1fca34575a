"""Codemode against its floor: the bare engine in-process plus bare round trips, all in one run.

`python -m benchmarks.run [--rounds N] [--json] [--only W1,W2]`
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from .floor import BareEngine, RoundTrips
from .measure import Samples, timed, timed_sync
from .workloads import PLAIN_TOOLS, WORKLOADS, Workload, code_mode_tool

# Latency is measured with a spare worker ready; throughput is another question (W5).
_SPARE_READY_SECONDS = 0.005


@dataclass(slots=True)
class Measured:
    """The samples of one workload."""

    workload: Workload
    ours: Samples = field(default_factory=Samples)
    engine: Samples = field(default_factory=Samples)
    trips: Samples = field(default_factory=Samples)
    async_trips: Samples = field(default_factory=Samples)

    def row(self) -> dict[str, Any]:
        """Return the figures."""
        floor = self.engine.median + self.trips.median
        return {
            "workload": self.workload.name,
            "what": self.workload.what,
            "ours_ms": round(self.ours.median, 4),
            "floor_ms": round(floor, 4),
            "ratio": round(self.ours.median / floor, 2),
            "asyncio_ratio": round(self.ours.median / (self.engine.median + self.async_trips.median), 2),
            "p95_of_p50": round(self.ours.percentile(95) / self.ours.median, 2),
            "spread": round(self.ours.spread, 2),
        }


async def measure(workloads: list[Workload], rounds: int) -> list[dict[str, Any]]:
    """Return the figures of each workload, its measurements interleaved with those of the others."""
    tool, engine, trips = code_mode_tool(), BareEngine(PLAIN_TOOLS), RoundTrips()
    results = [Measured(workload) for workload in workloads]
    try:
        for _ in range(3):
            for workload in workloads:
                assert await tool.execute({"js": workload.js}) == engine.run(workload.js)[0]
        for _ in range(rounds):
            for result in results:
                await _round(result, tool, engine, trips)
    finally:
        trips.close()
    return [result.row() for result in results]


async def _round(result: Measured, tool: Any, engine: BareEngine, trips: RoundTrips) -> None:
    workload = result.workload
    count = engine.run(workload.js)[1]
    await timed(lambda: tool.execute({"js": workload.js}), workload.runs, result.ours, _SPARE_READY_SECONDS)
    timed_sync(lambda: engine.run(workload.js), workload.runs, result.engine)
    timed_sync(lambda: trips.make(count), workload.runs, result.trips)
    await timed(lambda: trips.make_async(count), workload.runs, result.async_trips)


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the figures for people."""
    heads = ("ours ms", "floor ms", "ratio", "asyncio", "p95/p50", "spread")
    print(f"{'':4} {'workload':24} " + "{:>9} {:>9} {:>6} {:>8} {:>8} {:>7}".format(*heads))
    for row in rows:
        print(
            f"{row['workload']:4} {row['what']:24} {row['ours_ms']:9.3f} {row['floor_ms']:9.3f} {row['ratio']:6.2f}"
            f" {row['asyncio_ratio']:8.2f} {row['p95_of_p50']:8.2f} {row['spread']:7.2f}"
        )
    print("\nratio: ours / (bare engine + bare socketpair round trips); asyncio: the same trips through an event loop")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    chosen = [one for one in WORKLOADS if not arguments.only or one.name in arguments.only.split(",")]
    rows = asyncio.run(measure(chosen, arguments.rounds))
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        print_table(rows)


if __name__ == "__main__":
    main()
