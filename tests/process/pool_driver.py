"""What the tests of pools share: a call that stays open, a small invocation, the zygotes of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from leftovers import PATIENCE_SECONDS, children
from waiting import within

from codemode import (
    WorkerPool,
    run_code_mode,
    run_code_mode_sync,
)

PoolMaker = Callable[..., WorkerPool]


class Hold:
    """A tool that stays in a call until it is released."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()

    async def hold(self) -> str:
        self.entered.set()
        await self.release.wait()
        return "released"

    async def start(self, pool: WorkerPool) -> asyncio.Task[Any]:
        """Begin an invocation of `pool` and return once it is inside the call."""
        work = run_code_mode("return await tools.hold({})", {"hold": self.hold}, pool=pool)
        task = asyncio.create_task(work)
        await asyncio.wait_for(self.entered.wait(), PATIENCE_SECONDS)
        return task


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run an async test within bounded time."""
    return within(main())


def one(pool: WorkerPool) -> Any:
    """One small invocation."""
    return run_code_mode_sync("return 1 + 1", {}, pool=pool)


def zygotes(before: set[int]) -> set[int]:
    return children() - before
