"""W22: workers that are kept for many programs (`programs_per_worker=50`) against the default, in turn.

`python -m benchmarks.kept [rounds] [seconds]` measures monty's kept process in the same rounds, where it is installed.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codemode import PoolOptions, WorkerPool
from codemode.surfaces.code_mode.tool import CodeModeTool

from .latency import SPARE_READY_SECONDS
from .measure import Samples, runs_per_second, timed
from .programs import by_name
from .scaling import IN_FLIGHT
from .table import Row, machine, table
from .workloads import code_mode_tool

PROGRAMS = 50
_PACES = {"W1": SPARE_READY_SECONDS, "W1 without pauses": 0.0, "W2 without pauses": 0.0}
_LATENCY_TARGET, _RATE_TARGET = 0.6, 1.2
_WARM_UP_RUNS = 2 * PROGRAMS  # by then the zygote has made its engines
Rate = Callable[[int, float], float]


def kept_pool() -> WorkerPool:
    """Return a pool as W5 has it, with kept workers."""
    return WorkerPool(PoolOptions(max_workers=max(IN_FLIGHT), programs_per_worker=PROGRAMS))


@dataclass(slots=True)
class Kind:
    """A pool of one kind, and what was measured on it."""

    pool: WorkerPool
    tool: CodeModeTool = field(init=False)
    paced: dict[str, Samples] = field(default_factory=lambda: {name: Samples() for name in _PACES})
    rates: dict[int, list[float]] = field(default_factory=lambda: {count: [] for count in IN_FLIGHT})

    def __post_init__(self) -> None:
        """Make the tool."""
        self.tool = code_mode_tool(self.pool)

    async def run(self, name: str) -> None:
        """Run a program and check what it gives."""
        program = by_name(name)
        assert await self.tool.execute({"js": program.js}) == program.expected

    async def round(self, runs: int, seconds: float) -> None:
        """Measure everything once more."""
        for name, pause in _PACES.items():
            self.paced[name].add(await timed(lambda name=name: self.run(name[:2]), runs, pause))
        for count, found in self.rates.items():
            found.append(await runs_per_second(lambda: self.run("W2"), count, seconds))


async def kept_rows(rounds: int, runs: int, seconds: float, peer: Rate | None = None) -> list[Row]:
    """Return a row for each figure; ``peer`` gives the rate of another package for so many in flight."""
    kept, default = Kind(kept_pool()), Kind(WorkerPool(PoolOptions(max_workers=max(IN_FLIGHT))))
    rates: dict[int, list[float]] = {count: [] for count in IN_FLIGHT}
    try:
        for kind in (kept, default):
            await timed(lambda kind=kind: kind.run("W1"), min(_WARM_UP_RUNS, 3 * runs))
        for number in range(rounds):
            for kind in (kept, default) if number % 2 else (default, kept):
                await kind.round(runs, seconds)
            for count, found in rates.items() if peer is not None else ():
                assert peer is not None
                found.append(peer(count, seconds))
    finally:
        kept.pool.close()
        default.pool.close()
    return [*_latency_rows(kept, default), *(_rate_row(count, kept, default, rates[count]) for count in IN_FLIGHT)]


def _latency_rows(kept: Kind, default: Kind) -> list[Row]:
    rows: list[Row] = []
    for name in _PACES:
        ours, floor = kept.paced[name], default.paced[name]
        ratio = ours.median / floor.median
        row = Row("W22", f"{name}, kept workers", ours.median, floor=floor.median, ratio=ratio)
        row.tail, row.spread = ours.tail, ours.spread
        if name.startswith("W1"):
            row.target, row.met = f"<= {_LATENCY_TARGET}x the default", ratio <= _LATENCY_TARGET
        rows.append(row)
    return rows


def _rate_row(count: int, kept: Kind, default: Kind, peer: list[float]) -> Row:
    ours, floor = statistics.median(kept.rates[count]), statistics.median(default.rates[count])
    row = Row("W22", f"W2 with {count} in flight, kept workers", ours, "runs/s", floor=floor, ratio=floor / ours)
    if peer:
        # Neighbours in time: what else the machine did was the same for both.
        times = statistics.median(ours / other for ours, other in zip(kept.rates[count], peer, strict=True))
        row.target, row.met = f">= {_RATE_TARGET}x monty", times >= _RATE_TARGET
        row.note = f"{count} in flight: {times:.2f} times monty's kept process, {statistics.median(peer):.0f} runs/s"
    return row


def _monty(stack: ExitStack) -> Rate | None:
    """Return the rate of monty, None where it is not installed."""
    from .peers.peer import PeerFailedError, known_peers

    (peer,) = [one for one in known_peers(Path(tempfile.gettempdir()) / "programs.json") if one.name == "monty"]
    try:
        conversation = stack.enter_context(peer.started())
        conversation.ask({"do": "time", "workload": "W2", "runs": 3, "gap_ms": 5})
    except (PeerFailedError, OSError, ValueError):
        return None

    def rate(count: int, seconds: float) -> float:
        answer: dict[str, Any] = conversation.ask({"do": "rate", "in_flight": count, "seconds": seconds})
        return answer["runs_per_second"]

    return rate


def main(arguments: list[str]) -> None:
    """Measure and print."""
    rounds, seconds = int(arguments[0]) if arguments else 7, float(arguments[1]) if arguments[1:] else 2.0
    started = time.time()
    with ExitStack() as stack:
        rows = asyncio.run(kept_rows(rounds, 40, seconds, _monty(stack)))
    print(f"{machine()}, {time.time() - started:.0f} s\n\n{table(rows)}")


if __name__ == "__main__":
    main(sys.argv[1:])
