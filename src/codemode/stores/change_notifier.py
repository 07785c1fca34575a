"""Wakes those in this process who wait for a change, whichever of its stores made it. All look by themselves, too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Protocol
from weakref import WeakValueDictionary

from ..host.forks import forkable_lock, reset_in_forks

_POLL_SECONDS = 0.05


class ChangeProbe(Protocol):
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


class ChangeNotifier:
    """All that wait. ``look`` is asked some times a second while there are some."""

    def __init__(self, probe: ChangeProbe | None = None) -> None:
        self._watches: set[Watch] = set()
        self._lock = forkable_lock()
        self._probe = probe
        self._is_polling = False
        reset_in_forks(self)

    @contextmanager
    def watch(self) -> Generator[Watch]:
        """Give one that hears of every change from now on."""
        watch = Watch()
        with self._lock:
            self._watches.add(watch)
            if self._probe is not None and not self._is_polling:
                self._is_polling = True
                threading.Thread(target=self._poll, args=(self._probe,), name="codemode-looks", daemon=True).start()
        try:
            yield watch
        finally:
            with self._lock:
                self._watches.discard(watch)

    def close(self) -> None:
        """Close what is looked at now; it is opened again while somebody waits."""
        if self._probe is not None:
            self._probe.close()

    def notify(self) -> None:
        """Wake them all."""
        with self._lock:
            waiting = list(self._watches)
        for watch in waiting:
            watch.wake()

    def after_fork(self) -> None:
        """In a forked child: those that wait and the thread that looks are not in it."""
        self._watches, self._is_polling = set(), False

    def _poll(self, probe: ChangeProbe) -> None:
        pause, last = threading.Event(), object()
        while True:
            with self._lock:
                if not self._watches:
                    self._is_polling = False
                    probe.close()
                    return
            with suppress(Exception):  # whoever waits looks again, and is told
                current = probe()
                if current != last:
                    last = current
                    self.notify()
            pause.wait(_POLL_SECONDS)


def notifier_for(database: str, probe: ChangeProbe | None = None) -> ChangeNotifier:
    """Return those that wait for a database: the same for all stores of this process that have it open."""
    with _notifiers_lock:
        notifier = _notifiers.get(database)
        if notifier is None:
            notifier = _notifiers[database] = ChangeNotifier(probe)
        return notifier


_notifiers_lock = forkable_lock()
_notifiers: WeakValueDictionary[str, ChangeNotifier] = WeakValueDictionary()
