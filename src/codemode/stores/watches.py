"""Wakes those in this process who wait for a change that was made in it. Others look again by themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress


class LocalWatch:
    """One that waits, on its own loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait for a change that was made here, at most so long."""
        # `asyncio.wait_for` of Python 3.11 forgets a cancellation that comes together with the change.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()

    def wake(self) -> None:
        """End the wait, from any thread."""
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._event.set)


class LocalWatches:
    """All that wait."""

    def __init__(self) -> None:
        self._watches: set[LocalWatch] = set()
        self._lock = threading.Lock()

    @contextmanager
    def watch(self) -> Generator[LocalWatch]:
        """Give one that hears of every change from now on."""
        watch = LocalWatch()
        with self._lock:
            self._watches.add(watch)
        try:
            yield watch
        finally:
            with self._lock:
                self._watches.discard(watch)

    def wake(self) -> None:
        """Wake them all."""
        with self._lock:
            waiting = list(self._watches)
        for watch in waiting:
            watch.wake()
