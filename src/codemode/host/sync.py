"""Run coroutines for synchronous callers; refuse Temporal workflow functions."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from .imports import importing

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future


_TEMPORAL = "temporalio.workflow"


def require_outside_temporal_workflow() -> None:
    """Raise `RuntimeError` inside a Temporal workflow function, whose event loop has neither processes nor threads.

    The program would hang in it, or start again with each replay.
    """
    workflow = sys.modules.get(_TEMPORAL)
    if workflow is not None and getattr(workflow, "in_workflow", bool)():
        raise RuntimeError(
            "a program of codemode cannot run inside a Temporal workflow function, which is replayed and may start no"
            " process: run it in an activity, one activity for each program (docs/durable.md)"
        )


# `asyncio` takes 30 ms to import, in which a first worker can start: it is imported when needed.

ResultT = TypeVar("ResultT")


def run_sync(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine in this thread, or in another thread if an event loop is running in this one.

    Raises `RuntimeError` inside a Temporal workflow function.
    """
    with importing:
        import asyncio

    if not has_running_loop():
        return asyncio.run(work)  # outside `except`, so that its errors have no context
    try:
        require_outside_temporal_workflow()  # here, as other threads cannot detect it
    except RuntimeError:
        work.close()
        raise
    return _run_in_thread(work)


def has_running_loop() -> bool:
    """Return True where an event loop runs in this thread."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_in_thread(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    import asyncio
    import contextvars
    from concurrent.futures import Future, ThreadPoolExecutor
    from contextlib import suppress

    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()

    async def run_and_publish_task() -> ResultT:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await work

    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, thread_name_prefix="codemode-sync") as thread:
        outcome = thread.submit(context.run, asyncio.run, run_and_publish_task())
        try:
            return outcome.result()
        except KeyboardInterrupt:
            # Ctrl-C interrupts only the caller's thread; leaving the block waits for the other one.
            loop, task = started.result()
            if task is not None:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(task.cancel)
            raise
