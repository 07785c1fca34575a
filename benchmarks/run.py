"""Codemode against its floor: the bare engine in-process plus bare round trips, all in one run.

`python -m benchmarks.run [--rounds N] [--runs N] [--seconds S] [--json] [--only W1,W2]`
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass, replace

from .code_call import CODE_CALL
from .exec_wait import EXEC_WAIT, wake_rows
from .heartbeat import heartbeat_rows
from .kept import kept_rows
from .large_strings import large_string_rows
from .latency import Latencies
from .modules import MODULES
from .plugins import plugins
from .programs import PROGRAMS
from .scaling import description_rows, resume_rows, throughput_rows
from .search_updates import UPDATES, updates_row
from .stores import store_rows
from .surfaces import surface_rows
from .table import Row, machine, table
from .whole_process import cold_rows, memory_rows

_ORDER = (
    "W0",
    "W1",
    "W2",
    "W2u",
    "W3",
    "W4",
    "W5",
    "W6",
    "W7",
    "W8",
    "W9",
    "W10",
    "W11",
    "W12",
    "W13",
    "W14",
    "W15",
    "W16",
    "W17",
    "W18",
    "W19",
    "W22",
)
_LEGEND = """\
ratio: ours / floor, where the floor is the bare engine in-process plus its round trips over a bare socketpair
asyncio: ours / the bare engine plus the same round trips through an event loop
paced: ours / the floor run with the same 5 ms pauses as ours, its caches as cold; no target is judged by it
spread: how far the middle half of the rounds lies apart, as a share of the median"""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured. ``runs`` caps the runs of a program in one round."""

    rounds: int
    runs: int
    seconds: float
    only: frozenset[str]


async def measure(scale: Scale) -> list[Row]:
    """Return the rows of the workloads, in order."""
    rows: list[Row] = []
    if "W0" in scale.only:
        rows += cold_rows(min(scale.rounds, 10))
    rows += await _latency_rows(scale)
    if "W5" in scale.only:
        floor_ms = next((row.floor for row in rows if row.name == "W2"), None)
        rows += await throughput_rows(max(1, scale.rounds // 5), scale.seconds, floor_ms)
    rows += await _pool_rows(scale)
    if "W9" in scale.only:
        rows += description_rows(min(scale.rounds, 5))
    if "W10" in scale.only:
        rows += await resume_rows(scale.rounds)
    if scale.only & {"W16", "W17"}:
        rows += [row for row in await store_rows(min(60, 3 * scale.rounds)) if row.name in scale.only]
    if "W12" in scale.only:
        rows += await heartbeat_rows(3 * scale.seconds)
        rows.append(await updates_row(min(UPDATES, max(2, int(50 * scale.seconds)))))
    if "W13" in scale.only:
        rows += await large_string_rows(scale.rounds, min(scale.runs, 5))
    for surface in (CODE_CALL, MODULES, EXEC_WAIT):
        if surface.number in scale.only:
            rows += await surface_rows(surface, scale.rounds, scale.runs)
    if "W19" in scale.only:
        rows += await wake_rows(scale.rounds, min(scale.runs, 5), min(1.0, scale.seconds))
    return sorted(rows, key=lambda row: _ORDER.index(row.name))


async def _pool_rows(scale: Scale) -> list[Row]:
    rows = memory_rows() if "W8" in scale.only else []
    if "W22" in scale.only:
        rows += await kept_rows(max(1, scale.rounds // 3), scale.runs, scale.seconds)
    return rows


async def _latency_rows(scale: Scale) -> list[Row]:
    programs = [replace(one, runs=min(one.runs, scale.runs)) for one in PROGRAMS if one.name in scale.only]
    latencies = Latencies(programs)
    through_plugins = await plugins() if "W11" in scale.only else []
    try:
        await latencies.warm_up()
        for _ in range(scale.rounds):
            await latencies.round()
            for plugin in through_plugins:
                await plugin.round(min(scale.runs, 10))
    finally:
        latencies.close()
    rows = latencies.rows()
    floor_ms = next((row.floor for row in rows if row.name == "W2"), None)
    return [*rows, *(plugin.row(floor_ms) for plugin in through_plugins)]


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=40, help="at most so many runs of a program in a round")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement of runs per second")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default=",".join(_ORDER), help="such as W1,W2")
    given = parser.parse_args(arguments)
    if unknown := set(given.only.split(",")) - set(_ORDER):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    rows = asyncio.run(measure(Scale(given.rounds, given.runs, given.seconds, frozenset(given.only.split(",")))))
    if given.json:
        print(json.dumps({"machine": machine(), "rows": [row.figures() for row in rows]}, indent=2))
    else:
        print(f"{machine()}\n\n{table(rows)}\n\n{_LEGEND}")


if __name__ == "__main__":
    main()
