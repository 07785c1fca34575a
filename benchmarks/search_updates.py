"""How late a heartbeat comes while four threads search 10,000 tools that change again and again.

`python -m benchmarks.search_updates [updates]`; of each version a hundred tools are new.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from codemode.host.sync import run_sync
from codemode.tools.search.tool_search import ToolSearch

from .heartbeat import TARGET_MS, Heartbeat
from .signatures import McpTool, sample_tools
from .table import Row

COUNT = 10_000
UPDATES = 100
_CHANGED = 100
_THREADS = 4
_QUERIES = ("list issues of a repository", "lsit direcotry", "create a branch", "take a screenshot of the page")


def _searching(current: list[ToolSearch], done: threading.Event, torn: list[str]) -> Callable[[], None]:
    def run() -> None:
        while not done.is_set():
            search = current[0]
            twice = ((query, [run_sync(search.search_with_warnings(query, 8)) for _ in range(2)]) for query in _QUERIES)
            torn.extend(query for query, (one, other) in twice if one != other)

    return run


def _changed(tools: list[McpTool], version: int) -> None:
    for at in range(version * _CHANGED, (version + 1) * _CHANGED):
        tools[at % COUNT] = replace(tools[at % COUNT], description=f"Version {version} of a tool that changes.")


async def updates_row(updates: int = UPDATES) -> Row:
    """Return the worst beat while so many versions are made, each from the one before it."""
    tools = sample_tools(COUNT)
    current = [ToolSearch((tool.name, tool) for tool in tools)]
    await current[0].build_index()
    done, torn = threading.Event(), list[str]()
    threads = [threading.Thread(target=_searching(current, done, torn)) for _ in range(_THREADS)]
    heartbeat, took_ms = Heartbeat(), list[float]()
    try:
        for thread in threads:
            thread.start()
        async with heartbeat.beating():
            for version in range(updates):
                _changed(tools, version)
                new = current[0].with_tools((tool.name, tool) for tool in tools)
                started = time.perf_counter()
                await new.build_index()
                took_ms.append((time.perf_counter() - started) * 1000)
                current[0] = new
    finally:
        done.set()
        for thread in threads:
            thread.join()
    worst = heartbeat.percentile(100)
    note = (
        f"search of {COUNT:,} tools, {_CHANGED} of them new each time, {len(torn)} torn answers; ms late, "
        f"p50 / p99 / p100 of {len(heartbeat.late_ms)} beats: {heartbeat.text()}; "
        f"an update took {sorted(took_ms)[len(took_ms) // 2]:.0f} ms beside {_THREADS} searching threads"
    )
    what = f"heartbeat, {updates} updates of {COUNT:,} tools"
    return Row("W12", what, worst, target=f"<= {TARGET_MS:.0f} ms", met=worst <= TARGET_MS, note=note)


if __name__ == "__main__":
    print(asyncio.run(updates_row(int(sys.argv[1]) if len(sys.argv) > 1 else UPDATES)).note)
