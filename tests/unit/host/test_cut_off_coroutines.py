"""A function in a thread that returns a coroutine when nobody waits any more: it is closed, and never begins."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from typing import Any

from waiting import until

from codemode.host.threads import run_in_single_use_thread


async def never() -> None:
    raise AssertionError("it has begun")


def test_a_coroutine_that_nobody_awaits_is_closed() -> None:
    begun, goes_on, made = threading.Event(), threading.Event(), list[Coroutine[Any, Any, None]]()

    def work() -> Coroutine[Any, Any, None]:
        begun.set()
        goes_on.wait(60)
        made.append(never())
        return made[0]

    async def main() -> None:
        task = asyncio.ensure_future(run_in_single_use_thread(work))
        assert await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        await asyncio.wait([task])
        goes_on.set()
        await until(lambda: made and inspect.getcoroutinestate(made[0]) == inspect.CORO_CLOSED)

    asyncio.run(main())
