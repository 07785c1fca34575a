"""CodeCall's `execute` against `codeMode` on the same programs, each pair of runs taken in turn.

`python -m benchmarks.code_call [rounds]`. Loops are allowed, for the programs have some; all else is the default.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from codemode import CodeCallToolset, Tool, WorkerPool, create_code_call_tools

from .latency import SPARE_READY_SECONDS
from .measure import Samples
from .programs import PROGRAMS, Program, text_of
from .table import Row, table
from .workloads import code_mode_tool, noop, rows

TARGET = 1.1
COMPARED = ("W1", "W2", "W2u", "W3", "W4")
_LOOPS = {"vm": {"preset": "experimental"}}


def script_of(js: str) -> str:
    """Return a program for `codeMode` as a script."""
    return js.replace("tools.noop(", "callTool('noop', ").replace("tools.rows(", "callTool('rows', ")


class Pair:
    """One program on both faces. A figure of either is one of the other's neighbours in time."""

    def __init__(self, program: Program, pool: WorkerPool) -> None:
        self.program = program
        self.code_call, self.code_mode = Samples(), Samples()
        self._tool = code_mode_tool(pool)
        self._toolset: CodeCallToolset = create_code_call_tools([noop, Tool("rows", execute=rows)], _LOOPS, pool=pool)
        self._serial = 0

    async def round(self, runs: int) -> None:
        """Measure both as often, and check what they give."""
        execute: list[float] = []
        mode: list[float] = []
        for at in range(runs):
            turns = [(execute, self._by_code_call), (mode, self._by_code_mode)]
            for taken, run in turns if at % 2 else reversed(turns):
                taken.append(await self._timed(run))
        self.code_call.add(execute)
        self.code_mode.add(mode)

    def row(self) -> Row:
        """Return what it came to."""
        ratio = self.code_call.median / self.code_mode.median
        return Row(
            "W14",
            f"{self.program.name} by CodeCall's execute",
            self.code_call.median,
            floor=self.code_mode.median,
            ratio=ratio,
            tail=self.code_call.tail,
            spread=self.code_call.spread,
            target=f"<= {TARGET}x codeMode",
            met=ratio <= TARGET,
        )

    async def _timed(self, run: Callable[[str], Awaitable[Any]]) -> float:
        self._serial += 1
        text = text_of(self.program.js, "//", self._serial, unseen=self.program.unseen)
        await asyncio.sleep(SPARE_READY_SECONDS)
        started = time.perf_counter()
        given = await run(text)
        taken = (time.perf_counter() - started) * 1000
        assert given == self.program.expected, given
        return taken

    async def _by_code_mode(self, js: str) -> Any:
        return await self._tool.execute({"js": js})

    async def _by_code_call(self, js: str) -> Any:
        return (await self._toolset.execute({"script": script_of(js)})).get("result")


async def code_call_rows(rounds: int, runs: int = 40) -> list[Row]:
    """Return a row for each program."""
    pool = WorkerPool()
    try:
        pairs = [Pair(program, pool) for program in PROGRAMS if program.name in COMPARED]
        for pair in pairs:
            await pair.round(min(3, runs))
            pair.code_call, pair.code_mode = Samples(), Samples()
        for _ in range(rounds):
            for pair in pairs:
                await pair.round(min(pair.program.runs, runs))
    finally:
        pool.close()
    return [pair.row() for pair in pairs]


if __name__ == "__main__":
    print(table(asyncio.run(code_call_rows(int(sys.argv[1]) if len(sys.argv) > 1 else 15))))
