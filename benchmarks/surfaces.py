"""Another surface against `codeMode` on the same programs, each pair of runs taken in turn."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from codemode import WorkerPool

from .latency import SPARE_READY_SECONDS
from .measure import Samples
from .programs import PROGRAMS, Program, text_of
from .table import Row, table
from .workloads import code_mode_tool

Run = Callable[[str], Awaitable[Any]]


@dataclass(frozen=True)
class SurfaceUnderTest:
    """A surface that is compared. ``on`` gives what runs a program for `codeMode` on it; ``targets`` are by program."""

    number: str
    by: str
    on: Callable[[WorkerPool], Run]
    targets: Mapping[str, float]


class Pair:
    """One program on both surfaces. A figure of either is one of the other's neighbours in time."""

    def __init__(self, surface: SurfaceUnderTest, program: Program, pool: WorkerPool) -> None:
        self._surface = surface
        self._program = program
        self._other, self._tool = surface.on(pool), code_mode_tool(pool)
        self._serial = 0
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._by_other, self._by_code_mode = Samples(), Samples()
        self._cpu: dict[Run, list[float]] = {self._other: [], self._in_code_mode: []}

    async def round(self, runs: int) -> None:
        """Measure both as often, and check what they give."""
        by_other: list[float] = []
        by_code_mode: list[float] = []
        for at in range(min(self._program.runs, runs)):
            turns = [(by_other, self._other), (by_code_mode, self._in_code_mode)]
            for taken, run in turns if at % 2 else reversed(turns):
                taken.append(await self._timed(run))
        self._by_other.add(by_other)
        self._by_code_mode.add(by_code_mode)

    def row(self) -> Row:
        """Return what it came to."""
        other, code_mode, target = self._by_other, self._by_code_mode, self._surface.targets[self._program.name]
        ratio = other.median / code_mode.median
        return Row(
            self._surface.number,
            f"{self._program.name} by {self._surface.by}",
            other.median,
            floor=code_mode.median,
            ratio=ratio,
            tail=other.tail,
            spread=other.spread,
            target=f"<= {target}x codeMode",
            met=ratio <= target,
            note=f"{self._program.name}: {self._cpu_ratio:.2f} times the CPU of the host that codeMode takes",
        )

    @property
    def _cpu_ratio(self) -> float:
        """How much more the host computes: on a machine that is busy with other things it says more than time does."""
        return statistics.median(self._cpu[self._other]) / statistics.median(self._cpu[self._in_code_mode])

    async def _timed(self, run: Run) -> float:
        self._serial += 1
        text = text_of(self._program.js, "//", self._serial, unseen=self._program.unseen)
        await asyncio.sleep(SPARE_READY_SECONDS)
        started, computed = time.perf_counter(), time.process_time()
        given = await run(text)
        taken = (time.perf_counter() - started) * 1000
        self._cpu[run].append(time.process_time() - computed)
        assert given == self._program.expected, given
        return taken

    async def _in_code_mode(self, js: str) -> Any:
        return await self._tool.execute({"js": js})


async def surface_rows(surface: SurfaceUnderTest, rounds: int, runs: int = 40) -> list[Row]:
    """Return a row for each program."""
    pool = WorkerPool()
    try:
        pairs = [Pair(surface, program, pool) for program in PROGRAMS if program.name in surface.targets]
        for pair in pairs:
            await pair.round(min(3, runs))
            pair.forget()
        for _ in range(rounds):
            for pair in pairs:
                await pair.round(runs)
    finally:
        pool.close()
    return [pair.row() for pair in pairs]


def show(surface: SurfaceUnderTest, arguments: list[str]) -> None:
    """Print the table of a surface; the first argument is the number of rounds."""
    print(table(asyncio.run(surface_rows(surface, int(arguments[0]) if arguments else 15))))
