"""Work on the event loop that a run lives on, for whoever asks for it on another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from ..errors import CodeModeAbortedError, CodeModeConcurrencyError

ResultT = TypeVar("ResultT")
_GRACE_SECONDS = 4.0
_LOOK_SECONDS = 0.5  # whether there is a loop that does what it was asked
_CLOSED = "the event loop on which this run was started is closed"
_STANDS = "the event loop on which this run was started does not run now"


class _Asked:
    """Something that another loop was asked to do. ``done`` is what it comes to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.done: Future[Any] = Future()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._is_wanted = True

    def begin(self) -> None:
        if self._is_wanted:
            self._task = self._loop.create_task(self._work())
            self._task.add_done_callback(self._ended)

    def end(self) -> None:
        """Let it be cancelled, if it has begun. From any thread."""
        with suppress(RuntimeError):  # of a loop that was closed meanwhile
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._is_wanted = False
        if self._task is not None:
            self._task.cancel()
        else:
            self.done.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.done.cancel()
        elif (error := task.exception()) is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(task.result())


async def at_home(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Do something on a loop. Who is cancelled is so when that has seen it and has ended.

    Raises `CodeModeAbortedError` for a loop that is closed, or ends meanwhile, and `CodeModeConcurrencyError` for one
    that does not run.
    """
    if asyncio.get_running_loop() is loop:
        return await work()
    asked = _Asked(loop, work)
    try:
        loop.call_soon_threadsafe(asked.begin)
    except RuntimeError as error:
        raise CodeModeAbortedError(_CLOSED) from error
    here = asyncio.wrap_future(asked.done)
    try:
        await _outcome(loop, here)
    except BaseException:
        asked.end()
        if loop.is_running():
            await asyncio.wait([here], timeout=_GRACE_SECONDS)
        if here.done() and not here.cancelled():
            here.exception()  # looked at, so that nothing warns about it
        raise
    if here.cancelled():  # by its loop, as it ended: nobody has cancelled whoever waits here
        raise CodeModeAbortedError(_CLOSED)
    return here.result()


async def _outcome(loop: asyncio.AbstractEventLoop, here: asyncio.Future[Any]) -> None:
    while not here.done():
        did_run = loop.is_running()
        await asyncio.wait([here], timeout=_LOOK_SECONDS)
        if here.done() or (did_run and loop.is_running()):
            continue
        if loop.is_closed():
            raise CodeModeAbortedError(_CLOSED)
        if not did_run and not loop.is_running():
            raise CodeModeConcurrencyError(_STANDS)
