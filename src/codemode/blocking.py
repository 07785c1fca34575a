"""Async work for callers that are not async. Knows nothing of what it runs."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


def run_sync(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine to its end in this thread, or in a thread of its own when a loop already runs in this one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _run_in_thread(work)


def _run_in_thread(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()

    async def begin() -> ResultT:
        begun.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await work

    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, thread_name_prefix="codemode-sync") as thread:
        outcome = thread.submit(context.run, asyncio.run, begin())
        try:
            return outcome.result()
        except KeyboardInterrupt:
            # Ctrl-C reaches the caller's thread alone; leaving the block waits for the other one.
            loop, task = begun.result()
            if task is not None:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(task.cancel)
            raise
