"""Waits for what has no event of its own, for a bounded time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0


async def until(condition: Callable[[], object]) -> None:
    """Let other tasks run until a condition holds. Raises AssertionError when that takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        await asyncio.sleep(0.001)
