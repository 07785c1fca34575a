"""W5, W9, W10: what many runs at once, many tools and long ledgers cost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from codemode import PoolOptions, Tool, WorkerPool, create_code_mode_tool

from .measure import runs_per_second
from .programs import by_name
from .resume import ENTRIES, FORMS, resume_ms
from .signatures import COUNTS, sample_tools
from .table import CPUS, Row
from .workloads import code_mode_tool

IN_FLIGHT = (8, 32)
_RUNS_TARGET = 1000
# What counts as linear: the cost of one more, at the largest, against the same at the size before it.
_LINEAR = 1.5


async def throughput_rows(
    rounds: int, seconds: float, floor_ms: float | None = None, *, pool: WorkerPool | None = None
) -> list[Row]:
    """Return W5: runs a second, interleaved between the numbers in flight. Closes the ``pool``.

    The floor is what W2's own ``floor_ms``, one after the other on every CPU, would allow.
    """
    pool = pool or WorkerPool(PoolOptions(max_workers=max(IN_FLIGHT)))
    tool, text = code_mode_tool(pool), {"js": by_name("W2").js}
    rates: dict[int, list[float]] = {count: [] for count in IN_FLIGHT}
    try:
        await tool.execute(text)
        for _ in range(rounds):
            for count, found in rates.items():
                found.append(await runs_per_second(lambda: tool.execute(text), count, seconds))
    finally:
        pool.close()
    return [_throughput_row(count, found, floor_ms) for count, found in rates.items()]


def _throughput_row(count: int, rates: list[float], floor_ms: float | None) -> Row:
    rate = statistics.median(rates)
    floor = CPUS * 1000 / floor_ms if floor_ms else None
    return Row(
        "W5",
        f"W2 with {count} in flight",
        ours=rate,
        unit="runs/s",
        floor=floor,
        ratio=floor / rate if floor else None,
        spread=(max(rates) - min(rates)) / rate,
        target=f">= {_RUNS_TARGET} per 2 CPUs",
        met=rate >= _RUNS_TARGET * CPUS / 2,
    )


def description_rows(rounds: int) -> list[Row]:
    """Return W9: from tools to the text that the model reads."""
    times = {count: _best_ms(lambda count=count: _codemode_tools(count), _description, rounds) for count in COUNTS}
    return _linear_rows("W9", "description of {} tools", times)


def _codemode_tools(count: int) -> list[Tool]:
    return [
        Tool(tool.name, execute=None, description=tool.description, input_schema=tool.input_json_schema)
        for tool in sample_tools(count)
    ]


def _description(tools: list[Tool]) -> str:
    return create_code_mode_tool(tools).description


async def resume_rows(rounds: int) -> list[Row]:
    """Return W10: from the interrupt's JSON to the result, replaying the ledger."""
    pool = WorkerPool()
    try:
        times = {entries: (await resume_ms(entries, FORMS["plain"], pool, rounds))[0] for entries in ENTRIES}
    finally:
        pool.close()
    return _linear_rows("W10", "resume after {} entries", times)


def _best_ms(prepare: Callable[[], Any], work: Callable[[Any], object], rounds: int) -> float:
    times: list[float] = []
    for _ in range(rounds):
        given = prepare()
        started = time.perf_counter()
        work(given)
        times.append(time.perf_counter() - started)
    return min(times) * 1000


def _linear_rows(name: str, what: str, times: dict[int, float]) -> list[Row]:
    rows = [Row(name, what.format(size), ours=taken) for size, taken in times.items()]
    (small, small_ms), (middle, middle_ms), (large, large_ms) = times.items()
    before = (middle_ms - small_ms) / (middle - small)
    last = (large_ms - middle_ms) / (large - middle)
    rows[-1].target, rows[-1].met = "linear", last <= _LINEAR * max(before, 1e-9)
    each = f"{before * 1000:.0f} us up to {middle}, {last * 1000:.0f} us up to {large}"
    rows[-1].note = f"one more costs {each}; the best of the rounds"
    return rows
