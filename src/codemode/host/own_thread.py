"""Work in a thread of its own, which nobody else can keep busy. Knows nothing of the work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


async def in_own_thread(work: Callable[[], ResultT], name: str) -> ResultT:
    """Run work in a thread of its own: those of the loop may all be taken. A cancelled caller leaves it to its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[ResultT] = loop.create_future()

    def run() -> None:
        settle: Callable[[Any], None] = done.set_result
        try:
            outcome: Any = work()
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
            settle, outcome = done.set_exception, error
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(_settle, done, settle, outcome)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done


def _settle(done: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not done.done():
        settle(outcome)
