"""Wakes those in this process who wait for a change, whichever of its stores made it. All look by themselves, too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Protocol
from weakref import WeakValueDictionary

from ..host.forks import begin_anew_in_forks, forkable_lock

_LOOK_SECONDS = 0.05


class Look(Protocol):
    """What tells of changes by other processes, by another answer than the last one."""

    def __call__(self) -> object:
        """Return what changes with each change."""
        ...

    def close(self) -> None:
        """Close what is open. It may be asked again."""
        ...


class Watch:
    """One that waits, on its own loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait for a change, at most so long."""
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
    """All that wait. ``look`` is asked some times a second while there are some."""

    def __init__(self, look: Look | None = None) -> None:
        self._watches: set[Watch] = set()
        self._lock = forkable_lock()
        self._look = look
        self._is_looking = False
        begin_anew_in_forks(self)

    @contextmanager
    def watch(self) -> Generator[Watch]:
        """Give one that hears of every change from now on."""
        watch = Watch()
        with self._lock:
            self._watches.add(watch)
            if self._look is not None and not self._is_looking:
                self._is_looking = True
                threading.Thread(target=self._look_on, args=(self._look,), name="codemode-looks", daemon=True).start()
        try:
            yield watch
        finally:
            with self._lock:
                self._watches.discard(watch)

    def close(self) -> None:
        """Close what is looked at now; it is opened again while somebody waits."""
        if self._look is not None:
            self._look.close()

    def wake(self) -> None:
        """Wake them all."""
        with self._lock:
            waiting = list(self._watches)
        for watch in waiting:
            watch.wake()

    def after_fork(self) -> None:
        """In a forked child: those that wait and the thread that looks are not in it."""
        self._watches, self._is_looking = set(), False

    def _look_on(self, look: Look) -> None:
        pause, seen = threading.Event(), object()
        while True:
            with self._lock:
                if not self._watches:
                    self._is_looking = False
                    look.close()
                    return
            with suppress(Exception):  # whoever waits looks again, and is told
                found = look()
                if found != seen:
                    seen = found
                    self.wake()
            pause.wait(_LOOK_SECONDS)


def watches_of(database: str, look: Look | None = None) -> LocalWatches:
    """Return those that wait for a database: the same for all stores of this process that have it open."""
    with _sharing:
        known = _shared.get(database)
        if known is None:
            known = _shared[database] = LocalWatches(look)
        return known


_sharing = forkable_lock()
_shared: WeakValueDictionary[str, LocalWatches] = WeakValueDictionary()
