"""Cancellations: whose one is, and work that must not be left half done for it. Knows nothing of the work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")

_GRACE_SECONDS = 2.0
"""How long whoever is cancelled waits for the end of what must not be lost."""

FAILURES = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
"""What a tool's code may raise as its own failure: it ends neither the host, nor a task that nobody has cancelled."""


async def shield_to_end(work: asyncio.Future[ResultT] | Coroutine[Any, Any, ResultT]) -> ResultT:
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


async def wait_despite_cancellation(
    task: asyncio.Task[ResultT],
    on_late_result: Callable[[ResultT], None],
    may_cancel: Callable[[], bool] = lambda: False,
) -> ResultT:
    """Return what a task comes to. Who is cancelled meanwhile leaves that to ``keep``.

    Where it ``may_cut`` the task is cancelled too, and so is one that takes longer than two seconds; whoever looks
    afterwards sees what it has come to, unless it takes as long again to end.
    """
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        if may_cancel():
            task.cancel()
        try:
            await asyncio.wait([task], timeout=_GRACE_SECONDS)
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=_GRACE_SECONDS)
        finally:
            _pass_late_result(task, on_late_result)
        raise
    return task.result()


def _pass_late_result(task: asyncio.Task[ResultT], on_late_result: Callable[[ResultT], None]) -> None:
    if not task.done():
        task.cancel()
        task.add_done_callback(lambda _: _pass_late_result(task, on_late_result))
    elif not task.cancelled() and task.exception() is None:
        on_late_result(task.result())


@asynccontextmanager
async def run_alongside(work: Coroutine[Any, Any, object]) -> AsyncGenerator[None]:
    """Run work beside the block, and end it with the block.

    Who is cancelled while it ends is cancelled behind what the block has come to, which must not be lost with that.
    """
    owner, task = asyncio.current_task(), asyncio.get_running_loop().create_task(work)
    is_cancelled = False
    try:
        yield
    except asyncio.CancelledError:
        is_cancelled = True
        raise
    finally:
        task.cancel()
        try:
            await shield_to_end(asyncio.wait([task]))
        except asyncio.CancelledError:
            if owner is not None and not is_cancelled:
                owner.uncancel()
                owner.cancel()


def is_cancelled_from_outside(task: asyncio.Task[Any] | None) -> bool:
    """Tell whether work that runs in ``task`` was cancelled, or is closed because nobody awaits it any more.

    If neither, a `CancelledError` or `GeneratorExit` comes from something inside the work, and is its own failure.
    """
    try:
        return task is None or asyncio.current_task() is not task or bool(task.cancelling())
    except RuntimeError:  # its loop no longer runs
        return True
