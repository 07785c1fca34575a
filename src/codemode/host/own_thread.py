"""Work in a thread of its own, which nobody else can keep busy. Knows nothing of the work."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")
_IDLE_SECONDS = 5.0


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

    try:
        thread = _idle.pop()
    except IndexError:
        thread = _Thread()
    thread.give(run, name)
    return await done


class _Thread:
    """A thread that has one work at a time, and waits a little for another: to start one takes longer than most."""

    def __init__(self) -> None:
        self._given: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def give(self, work: Callable[[], None], name: str) -> None:
        self._thread.name = name
        self._given.put(work)

    def _run(self) -> None:
        work: Callable[[], None] | None = self._given.get()
        while work is not None:
            work()
            work = None  # what it holds is nobody's while the thread waits
            _idle.append(self)
            work = self._next()

    def _next(self) -> Callable[[], None] | None:
        try:
            return self._given.get(timeout=_IDLE_SECONDS)
        except Empty:
            try:
                _idle.remove(self)
            except ValueError:  # somebody has just taken it
                return self._given.get()
            return None


def _settle(done: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not done.done():
        settle(outcome)


_idle: list[_Thread] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)
