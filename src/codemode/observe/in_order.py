"""A function of the host that is told one thing after another, and never two at once. Knows nothing of what it is."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary


class InOrder:
    """Calls a function with one value after another: an async one has ended with the last before it begins the next.

    Each event loop has an order of its own.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._last: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[None]] = WeakKeyDictionary()

    def __call__(self, value: Any) -> Awaitable[None] | None:
        """Call it. What is returned is to be awaited in a task of its own."""
        pending = self._function(value)
        if not inspect.isawaitable(pending):
            return None
        loop = asyncio.get_running_loop()
        before, done = self._last.get(loop), loop.create_future()
        self._last[loop] = done
        return self._after(before, pending, done)

    async def _after(
        self, before: asyncio.Future[None] | None, pending: Awaitable[Any], done: asyncio.Future[None]
    ) -> None:
        try:
            if before is not None:
                await asyncio.shield(before)
            await pending
        finally:
            if inspect.iscoroutine(pending):
                pending.close()  # one that never began would warn of it
            done.set_result(None)
            loop = done.get_loop()
            if self._last.get(loop) is done:
                del self._last[loop]  # which it knows, so that neither would ever go
