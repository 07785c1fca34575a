"""Wake tasks of this process that wait for a change of a database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Protocol
from weakref import WeakValueDictionary

from ..host.forks import create_fork_safe_lock, register_fork_reset

_POLL_SECONDS = 0.05


class ChangeProbe(Protocol):
    """Detects changes by other processes: its return value differs from the last one."""

    def __call__(self) -> object:
        """Return a value that differs after each change."""
        ...

    def close(self) -> None:
        """Close connections. May be called again."""
        ...


class ChangeWatch:
    """Wakes one waiting task, on its event loop, when the database changes."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait for a change, at most ``seconds``."""
        # `asyncio.wait_for` of Python 3.11 loses a cancellation that arrives together with the change.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()

    def wake(self) -> None:
        """End the wait, from any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._event.set)


class ChangeNotifier:
    """Wakes all watches of a database on each change. ``probe`` is polled in a thread while there are watches."""

    def __init__(self, probe: ChangeProbe | None = None) -> None:
        self._watches: set[ChangeWatch] = set()
        self._lock = create_fork_safe_lock()
        self._probe = probe
        self._is_polling = False
        register_fork_reset(self)

    @contextmanager
    def watch(self) -> Generator[ChangeWatch]:
        """Give a watch that wakes on every change from now on."""
        watch = ChangeWatch()
        with self._lock:
            self._watches.add(watch)
            if self._probe is not None and not self._is_polling:
                self._is_polling = True
                threading.Thread(
                    target=self._poll_probe, args=(self._probe,), name="codemode-probe", daemon=True
                ).start()
        try:
            yield watch
        finally:
            with self._lock:
                self._watches.discard(watch)

    def close(self) -> None:
        """Close the probe; the next watch opens it again."""
        if self._probe is not None:
            self._probe.close()

    def notify(self) -> None:
        """Wake all watches."""
        with self._lock:
            waiting = list(self._watches)
        for watch in waiting:
            watch.wake()

    def after_fork(self) -> None:
        """In a forked child: neither the watches nor the polling thread exist."""
        self._watches, self._is_polling = set(), False

    def _poll_probe(self, probe: ChangeProbe) -> None:
        pause, last = threading.Event(), object()
        while True:
            with self._lock:
                if not self._watches:
                    self._is_polling = False
                    probe.close()
                    return
            with suppress(Exception):  # the waiting task's own query reports it
                current = probe()
                if current != last:
                    last = current
                    self.notify()
            pause.wait(_POLL_SECONDS)


def get_or_create_notifier(database: str, probe: ChangeProbe | None = None) -> ChangeNotifier:
    """Return the notifier of a database, shared by all stores of this process that use it."""
    with _notifiers_lock:
        notifier = _notifiers.get(database)
        if notifier is None:
            notifier = _notifiers[database] = ChangeNotifier(probe)
        return notifier


_notifiers_lock = create_fork_safe_lock()
_notifiers: WeakValueDictionary[str, ChangeNotifier] = WeakValueDictionary()
