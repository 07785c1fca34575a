"""W1 to W4, W6, W7: time to the result of one program, against the bare engine and bare round trips."""

from __future__ import annotations

from dataclasses import dataclass, field

from codemode.surfaces.code_mode.tool import CodeModeTool

from .floor import BareEngine, RoundTrips
from .measure import Samples, timed, timed_sync
from .programs import Program, text_of
from .table import Row
from .workloads import PLAIN_TOOLS, code_mode_tool

# Latency is measured with a spare worker ready; throughput is another question (W5).
SPARE_READY_SECONDS = 0.005

# Of the ratio to the floor.
_TARGETS = {"W1": 2.5, "W2": 2.5, "W3": 3.0, "W4": 3.0, "W6": 1.3, "W7": 1.1}
_ASYNCIO_TARGET = 2.0
_TAIL_TARGET = 2.0


@dataclass(slots=True)
class Measured:
    """The samples of one workload."""

    program: Program
    ours: Samples = field(default_factory=Samples)
    engine: Samples = field(default_factory=Samples)
    trips: Samples = field(default_factory=Samples)
    async_trips: Samples = field(default_factory=Samples)
    paced: Samples = field(default_factory=Samples)
    serial: int = 0

    @property
    def floor(self) -> float:
        """Milliseconds of the bare engine and the bare round trips."""
        return self.engine.median + self.trips.median

    @property
    def asyncio_floor(self) -> float:
        """Milliseconds of the bare engine and the same trips through an event loop."""
        return self.engine.median + self.async_trips.median

    def next_text(self) -> str:
        """Return the program of the next run."""
        self.serial += 1
        return text_of(self.program.js, "//", self.serial, unseen=self.program.unseen)


class Latencies:
    """Measures the programs, a round of each at a time."""

    def __init__(self, programs: list[Program], tool: CodeModeTool | None = None) -> None:
        self.results = [Measured(program) for program in programs]
        self._tool: CodeModeTool = tool or code_mode_tool()
        self._engine = BareEngine(PLAIN_TOOLS)
        self._trips = RoundTrips()

    async def warm_up(self) -> None:
        """Run every program, and check that it gives what it should."""
        for _ in range(3):
            for result in self.results:
                text, expected = result.next_text(), result.program.expected
                assert await self._tool.execute({"js": text}) == self._engine.run(text)[0] == expected

    async def round(self) -> None:
        """Measure every program once more."""
        for result in self.results:
            await self._measure(result)

    def rows(self) -> list[Row]:
        """Return a row for each program."""
        known = next((result for result in self.results if result.program.name == "W2"), None)
        return [_row(result, known) for result in self.results]

    def close(self) -> None:
        """End the process at the other end of the round trips."""
        self._trips.close()

    async def _measure(self, result: Measured) -> None:
        runs = result.program.runs
        count = self._engine.run(result.next_text())[1]
        result.ours.add(await timed(lambda: self._tool.execute({"js": result.next_text()}), runs, SPARE_READY_SECONDS))
        result.engine.add(timed_sync(lambda: self._engine.run(result.next_text()), runs))
        result.trips.add(timed_sync(lambda: self._trips.make(count), runs))
        result.async_trips.add(await timed(lambda: self._trips.make_async(count), runs))

        def whole_floor() -> None:
            self._engine.run(result.next_text())
            self._trips.make(count)

        result.paced.add(timed_sync(whole_floor, runs, SPARE_READY_SECONDS))


def _row(result: Measured, known: Measured | None) -> Row:
    ours = result.ours.median
    row = Row(
        result.program.name,
        result.program.what,
        ours=ours,
        floor=result.floor,
        ratio=ours / result.floor,
        asyncio_ratio=ours / result.asyncio_floor,
        paced_ratio=ours / result.paced.median,
        tail=result.ours.tail,
        spread=result.ours.spread,
    )
    if result.program.unseen:
        _against_known(row, known)
    else:
        _against_floor(row)
    return row


def _against_floor(row: Row) -> None:
    limit = _TARGETS[row.name]
    assert row.ratio is not None
    assert row.asyncio_ratio is not None
    assert row.tail is not None
    row.target, row.met = f"<= {limit}x", row.ratio <= limit
    if row.name in ("W3", "W4"):
        row.target += f", asyncio <= {_ASYNCIO_TARGET:g}x"
        row.met = row.met and row.asyncio_ratio <= _ASYNCIO_TARGET
    if row.name in ("W1", "W2"):
        row.target += f", p95 <= {_TAIL_TARGET:g}x p50"
        row.met = row.met and row.tail <= _TAIL_TARGET


def _against_known(row: Row, known: Measured | None) -> None:
    row.target = "<= 2x W2"
    if known is not None and row.ours is not None:
        times = row.ours / known.ours.median
        row.met, row.note = times <= 2, f"{times:.2f}x W2 of the same run"
