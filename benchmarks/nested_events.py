"""What it takes to tell of each call of a program while it runs: ``python -m benchmarks.nested_events [runs]``.

An agent's run with programs of 3 and 50 calls, in turn with the plugin's events and with nobody who hears of calls.
The ratio of the medians shall be at most 1.1.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any

from codemode_pydantic_ai import CodeMode, outer_call

from codemode.plugins import add_event_listener

from .frameworks import OneCall, pydantic_ai_agent

_CALLS = (3, 50)


async def echo(n: int) -> int:
    """Return what is given."""
    return n


@contextmanager
def _unheard(_listener: Callable[[Any], Any]) -> Generator[None]:
    yield


async def _ratio(agent: OneCall, calls: int, runs: int) -> tuple[float, float]:
    js = f"let sum = 0; for (let n = 0; n < {calls}; n += 1) sum += await tools.echo({{ n }}); return sum"
    heard: Any = add_event_listener
    took: dict[Any, list[float]] = {heard: [], _unheard: []}
    try:
        for number in range(runs + 10):
            for way, seconds in took.items():
                setattr(outer_call, "add_event_listener", way)  # noqa: B010 - not the name's own type
                started = perf_counter()
                assert await agent("codeMode", {"js": js}) == calls * (calls - 1) // 2
                if number >= 10:
                    seconds.append(perf_counter() - started)
    finally:
        setattr(outer_call, "add_event_listener", heard)  # noqa: B010 - as above
    return median(took[heard]) * 1000, median(took[_unheard]) * 1000


async def main(runs: int) -> None:
    """Print a line for each program."""
    agent = pydantic_ai_agent([echo], [CodeMode()])
    for calls in _CALLS:
        told, untold = await _ratio(agent, calls, runs)
        print(f"{calls} calls: {told:.2f} ms told of, {untold:.2f} ms untold: {told / untold:.3f}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 200))
