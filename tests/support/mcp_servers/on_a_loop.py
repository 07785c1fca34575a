"""Runs tests of servers on a loop of their own, in bounded time."""

import asyncio
from collections.abc import Callable
from typing import Any


def run(work: Callable[[], Any]) -> Any:
    """Run async work to its end."""

    async def bounded() -> Any:
        return await asyncio.wait_for(work(), 60)

    return asyncio.run(bounded())


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds that happens elsewhere."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - what another process does sets no event here
            await asyncio.sleep(0.01)
