"""Waits of tests, all of them bounded: for work on a loop of its own, and for what has no event of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

WAIT_SECONDS = 60.0


def within(work: Awaitable[Any], seconds: float = WAIT_SECONDS) -> Any:
    """Run work on a loop of its own, in its one task.

    `asyncio.wait_for` makes a second one on Python 3.11. When what ends the host went through that, asyncio complains
    of it in whatever test runs by then.
    """

    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


async def until(condition: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
    """Let other tasks run until a condition holds. Raises AssertionError when that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        await asyncio.sleep(0.001)
