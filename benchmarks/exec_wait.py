"""W18 and W19: exec against `codeMode` on the same programs, and what it costs to go on with one that waits.

`python -m benchmarks.exec_wait [rounds]` prints both, and what a waiting run takes: bytes of its ledger, memory of the
host while it is cold, and of its worker while it is warm.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
import tracemalloc
from dataclasses import dataclass, field
from typing import Any

from codemode import ExecWaitTools, Tool, WorkerPool, create_exec_wait_tools

from .latency import SPARE_READY_SECONDS
from .measure import Samples
from .processes import pss_mib
from .surfaces import Run, SurfaceUnderTest, surface_rows
from .table import Row, table
from .workloads import noop, rows

CALLS = (0, 16, 64, 256)
_GOAL_CALLS, _GOAL = 64, 0.5
_COMPUTING_ROUNDS = 3
_PROBE_STEPS = 200_000
_HELD_COLD, _HELD_WARM = 64, 4
_OPTIONS: dict[str, Any] = {"maxPendingToolCalls": 128, "maxWaitingRuns": 1_000}
_CALLING = "let n = 0; for (let i = 0; i < COUNT; i++) n += await tools.noop({ n: i }); await yield_control(); return n"
_COMPUTING = "let n = 7; for (let i = 0; i < STEPS; i++) n = (n * 31 + i) % 1000003; await yield_control(); return n"


def _pair(pool: WorkerPool, warm: int = 4) -> ExecWaitTools:
    return create_exec_wait_tools(
        [noop, Tool("rows", execute=rows)], {**_OPTIONS, "maxWarmRuns": warm, "timeoutMs": 60_000}, pool=pool
    )


def _on(pool: WorkerPool) -> Run:
    pair = _pair(pool)

    async def run(js: str) -> Any:
        return (await pair.exec.execute({"code": js})).get("value")

    return run


EXEC_WAIT = SurfaceUnderTest("W18", "exec", _on, dict.fromkeys(("W1", "W2", "W2u", "W3", "W4"), 1.1))


@dataclass
class Woken:
    """One program up to its rest and from there on, with its worker and without, beside `return 1`."""

    what: str
    js: str
    is_warm: bool
    rounds: int
    target: float | None = None
    first: Samples = field(default_factory=Samples)
    wake: Samples = field(default_factory=Samples)
    nothing: Samples = field(default_factory=Samples)

    async def round(self, pair: ExecWaitTools, runs: int) -> None:
        """Measure so many runs."""
        taken: list[tuple[float, float, float]] = []
        for _ in range(runs):
            nothing, _ = await _timed(pair.exec.execute({"code": "return 1"}))
            first, rested = await _timed(pair.exec.execute({"code": self.js}))
            assert rested["status"] == "waiting", rested
            wake, ended = await _timed(pair.wait.execute({"runId": rested["runId"]}))
            assert ended["status"] == "completed", ended
            taken.append((first, wake, nothing))
        for samples, milliseconds in zip((self.first, self.wake, self.nothing), zip(*taken, strict=True), strict=True):
            samples.add([*milliseconds])

    def row(self) -> Row:
        """Return what it came to: the floor is the first run."""
        ratio = self.wake.median / self.first.median
        return Row(
            "W19",
            f"{'warm' if self.is_warm else 'cold'} wake, {self.what}",
            self.wake.median,
            floor=self.first.median,
            ratio=ratio,
            tail=self.wake.tail,
            spread=self.wake.spread,
            target="" if self.target is None else f"<= {self.target}x the first run",
            met=None if self.target is None else ratio <= self.target,
            note=f"{'warm' if self.is_warm else 'cold'}, {self.what}: "
            f"{self.wake.median / self.nothing.median:.2f} times `return 1` by exec",
        )


async def _timed(work: Any) -> tuple[float, Any]:
    await asyncio.sleep(SPARE_READY_SECONDS)
    started = time.perf_counter()
    given = await work
    return (time.perf_counter() - started) * 1000, given


async def _steps(pair: ExecWaitTools, seconds: float) -> int:
    """Return how many steps of the program that computes take so long."""
    program = _COMPUTING.replace("STEPS", str(_PROBE_STEPS)).replace("await yield_control(); ", "")
    took = min([(await _timed(pair.exec.execute({"code": program})))[0] for _ in range(3)])
    return max(1, int(_PROBE_STEPS * seconds * 1000 / took))


async def wake_rows(rounds: int, runs: int = 5, computing_seconds: float = 1.0) -> list[Row]:
    """Return a row for each program and each way to wake it."""
    pool = WorkerPool()
    pairs = {True: _pair(pool), False: _pair(pool, warm=0)}
    steps = await _steps(pairs[True], computing_seconds)
    cases = [
        Woken(f"{count} calls", _CALLING.replace("COUNT", str(count)), warm, rounds)
        for count in CALLS
        for warm in (True, False)
    ]
    for one in cases:
        one.target = _GOAL if not one.is_warm and one.what == f"{_GOAL_CALLS} calls" else None
    computing = _COMPUTING.replace("STEPS", str(steps))
    what = f"{computing_seconds:g} s of computing"
    cases += [Woken(what, computing, warm, min(rounds, _COMPUTING_ROUNDS)) for warm in (True, False)]
    try:
        for at in range(rounds):
            for one in cases:
                if at < one.rounds:
                    await one.round(pairs[one.is_warm], 1 if one.rounds < rounds else runs)
    finally:
        for pair in pairs.values():
            await pair.aclose()
        pool.close()
    return [one.row() for one in cases]


async def sizes() -> list[str]:
    """Return lines on what a waiting run takes."""
    pool = WorkerPool()
    lines: list[str] = []
    try:
        by_calls = {count: await _cold_bytes(pool, count) for count in CALLS}
        (least, _), (most, _) = by_calls[CALLS[0]], by_calls[CALLS[-1]]
        for count, (told, held) in by_calls.items():
            lines.append(
                f"{count:4} calls: {told:,} bytes at rest, and {held:,.0f} bytes of the host's memory while cold"
            )
        lines.append(f"a recorded small call: {(most - least) / CALLS[-1]:.0f} bytes")
        warm = await _warm_mib(pool)
        lines.append("PSS is not told here" if warm is None else f"a warm run: {warm:.1f} MiB of PSS for its worker")
    finally:
        pool.close()
    return lines


async def _cold_bytes(pool: WorkerPool, calls: int) -> tuple[int, float]:
    """Return the bytes that a run at rest is said to take, and those that the host allocates for each."""
    pair, js = _pair(pool, warm=0), _CALLING.replace("COUNT", str(calls))
    for _ in range(2):
        await pair.exec.execute({"code": js})
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for at in range(_HELD_COLD):  # each a text of its own, as programs of models are
        rested = await pair.exec.execute({"code": f"{js} // {at:5}"})
        assert rested["status"] == "waiting", rested
    await asyncio.sleep(0.1)  # what its end leaves for later is done
    gc.collect()
    held = (tracemalloc.get_traced_memory()[0] - before) / _HELD_COLD
    tracemalloc.stop()
    told = pair.runs()[-1].bytes
    await pair.aclose()
    return told, held


async def _warm_mib(pool: WorkerPool) -> float | None:
    """Return the PSS that each of some warm runs adds; None where that cannot be read."""
    pair = _pair(pool, warm=_HELD_WARM)
    await pair.exec.execute({"code": "return 1"})
    await asyncio.sleep(0.3)  # the spare worker is there
    try:
        before = pss_mib(os.getpid())
        for _ in range(_HELD_WARM):
            await pair.exec.execute({"code": _CALLING.replace("COUNT", "16")})
        await asyncio.sleep(0.3)
        count = sum(one.warm for one in pair.runs())
        return (pss_mib(os.getpid()) - before) / max(1, count)
    except OSError:
        return None
    finally:
        await pair.aclose()


async def _show(rounds: int) -> None:
    found = await surface_rows(EXEC_WAIT, rounds)
    print(table([*found, *await wake_rows(rounds)]))
    print("\n" + "\n".join(await sizes()))


if __name__ == "__main__":
    asyncio.run(_show(int(sys.argv[1]) if len(sys.argv) > 1 else 15))
