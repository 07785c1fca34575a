"""Awaiting what must not be left half done. Knows nothing of what it is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


async def to_its_end(work: asyncio.Future[ResultT] | Coroutine[Any, Any, ResultT]) -> ResultT:
    """Await something to its end, however often the caller is cancelled; the cancellation comes after it."""
    future = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return future.result()
    if not future.cancelled():
        future.exception()  # looked at, so that nothing warns about it
    raise cancelled
