"""Work that serves whoever asks for it while it is under way, from any thread and event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...host.forks import begin_anew_in_forks, forkable_lock, leave_to_the_parent


@dataclass
class _UnderWay:
    loop: asyncio.AbstractEventLoop
    done: Future[None] = field(default_factory=Future[None])
    waiters: int = 0
    task: asyncio.Task[None] | None = None


class Once:
    """One run of some work at a time, on the loop of whoever asks first. It ends when nobody waits any more."""

    def __init__(self, work: Callable[..., Awaitable[None]]) -> None:
        self._work = work
        self._lock = forkable_lock()
        self._under_way: _UnderWay | None = None
        begin_anew_in_forks(self)

    def after_fork(self) -> None:
        """In a forked child: the loop that does the work is not in it, and nobody is to wait for it."""
        leave_to_the_parent(self._under_way)
        self._under_way = None

    async def run(self, *given: Any) -> None:
        """Do the work, or wait for whoever does it. A loop that ends, or a last waiter that leaves, hands it on.

        Raises what the work raises, to all who wait for it.
        """
        while True:
            one = self._joined(given)
            try:
                await asyncio.shield(asyncio.wrap_future(one.done))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not one.done.cancelled() or (task is not None and task.cancelling()):
                    raise
            else:
                return
            finally:
                self._leave(one)

    def _joined(self, given: tuple[Any, ...]) -> _UnderWay:
        with self._lock:
            one = self._under_way
            if one is None or one.loop.is_closed():
                one = self._under_way = _UnderWay(asyncio.get_running_loop())
                one.task = one.loop.create_task(self._perform(one, given))
            one.waiters += 1
            return one

    def _leave(self, one: _UnderWay) -> None:
        with self._lock:
            one.waiters -= 1
            task = None if one.waiters or one.done.done() else one.task
            if task is not None and self._under_way is one:
                self._under_way = None
        if task is not None:
            with suppress(RuntimeError):  # its loop is closed
                one.loop.call_soon_threadsafe(task.cancel)

    async def _perform(self, one: _UnderWay, given: tuple[Any, ...]) -> None:
        end: Callable[[], Any] = one.done.cancel
        try:
            await self._work(*given)
            end = partial(one.done.set_result, None)
        except Exception as error:  # noqa: BLE001 - it is that of all who wait
            end = partial(one.done.set_exception, error)
        finally:
            with self._lock:
                if self._under_way is one:
                    self._under_way = None
            with suppress(InvalidStateError):  # nobody waits any more
                end()
