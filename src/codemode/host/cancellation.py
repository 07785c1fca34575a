"""Shield work from cancellation, and tell outside cancellations from inner ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")

_GRACE_SECONDS = 2.0
"""How long a cancelled caller waits for work that must not be lost."""

FAILURES = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
"""Exceptions of a tool's code that are its own failure; they end neither the host nor its task."""


async def shield_until_done(work: asyncio.Future[ResultT] | Coroutine[Any, Any, ResultT]) -> ResultT:
    """Await work to its end even if the caller is cancelled; the cancellation is raised afterwards."""
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
        future.exception()  # retrieved, so that asyncio does not warn
    raise cancelled


async def wait_or_pass_late_result(
    task: asyncio.Task[ResultT],
    on_late_result: Callable[[ResultT], None],
    may_cancel: Callable[[], bool] = lambda: False,
) -> ResultT:
    """Return the result of a task. If the caller is cancelled, ``on_late_result`` gets the result.

    If ``may_cancel()``, the task is cancelled too, and after two seconds in any case; it then has two more to end.
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
async def run_alongside_block(work: Coroutine[Any, Any, object]) -> AsyncGenerator[None]:
    """Run work concurrently with the block, and cancel it at its end.

    A cancellation while it ends is raised after the block's outcome, which must not be lost.
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
            await shield_until_done(asyncio.wait([task]))
        except asyncio.CancelledError:
            if owner is not None and not is_cancelled:
                owner.uncancel()
                owner.cancel()


def is_cancelled_from_outside(task: asyncio.Task[Any] | None) -> bool:
    """Return whether work in ``task`` was cancelled, or is closed because nothing awaits it any more.

    Otherwise a `CancelledError` or `GeneratorExit` comes from inside the work and is its own failure.
    """
    try:
        return task is None or asyncio.current_task() is not task or bool(task.cancelling())
    except RuntimeError:  # its loop no longer runs
        return True
