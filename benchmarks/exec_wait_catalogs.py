"""What large catalogs cost exec, beside CodeCall: making the tools, a run, a search, and how long the loop is held.

`python -m benchmarks.exec_wait_catalogs`. CPU of the host in milliseconds, and the latest beat of a heartbeat in each.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from codemode import CodeCallToolset, ExecWaitTools, WorkerPool, create_code_call_tools, create_exec_wait_tools

from .heartbeat import Heartbeat
from .latency import SPARE_READY_SECONDS
from .prompts import sample

COUNTS = (1, 1_002, 10_000)
_MADE, _RUNS = 3, 40
_QUERY = "create an issue"
_SEARCHES = f"return (await tools.search({_QUERY!r})).length"
_LOOKS = "return [ALL_TOOLS.length, Object.keys(tools).length]"


def _made(make: Callable[..., Any], count: int, pool: WorkerPool) -> tuple[float, Any]:
    """Return the least milliseconds of CPU that making it took, and what was made last."""
    took: list[float] = []
    made: Any = None
    for _ in range(_MADE):
        tools = sample(count)
        started = time.process_time()
        made = make(tools, pool=pool)
        took.append((time.process_time() - started) * 1000)
    return min(took), made


async def _cpu_ms(work: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    """Return the CPU of the host for one run, a median, and how late the latest beat came."""
    took: list[float] = []
    heartbeat = Heartbeat()
    async with heartbeat.beating():
        for _ in range(_RUNS):
            await asyncio.sleep(SPARE_READY_SECONDS)
            started = time.thread_time()
            await work()
            took.append((time.thread_time() - started) * 1000)
    return statistics.median(took), max(heartbeat.late_ms, default=0.0)


def _works(pair: ExecWaitTools, code_call: CodeCallToolset) -> list[Callable[[], Awaitable[Any]]]:
    """Return what is measured: runs that look at nothing, search and list, and CodeCall's search."""
    runs = [partial(pair.exec.execute, {"code": code}) for code in ("return 1", _SEARCHES, _LOOKS)]
    return [*runs, partial(code_call.search, {"queries": [_QUERY]})]


async def lines(counts: tuple[int, ...] = COUNTS) -> list[str]:
    """Return a row for each size."""
    pool = WorkerPool()
    shown: list[str] = []
    try:
        for count in counts:
            by_call, code_call = _made(create_code_call_tools, count, pool)
            by_pair, pair = _made(create_exec_wait_tools, count, pool)
            cells = [f"{count:,}", f"{by_pair:.1f}", f"{by_pair / by_call:.2f}"]
            for work in _works(pair, code_call):
                took, late = await _cpu_ms(work)
                cells.append(f"{took:.2f} ({late:.0f} late)")
            await pair.aclose()
            shown.append(f"| {' | '.join(cells)} |")
    finally:
        pool.close()
    return shown


def main() -> None:
    """Print the table."""
    print("| tools | made in | times CodeCall's | `return 1` | a search | ALL_TOOLS and names | CodeCall's search |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print("\n".join(asyncio.run(lines())))


if __name__ == "__main__":
    main()
