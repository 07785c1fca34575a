"""The wall clock, and a timer on the event loop that can be stopped and restarted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

_SLACK_SECONDS = 0.001


def now_ms() -> int:
    """Return the host's wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def monotonic_seconds() -> float:
    """Return a monotonic clock that also counts while the process is stopped or the machine sleeps."""
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


class SecondsCounter(Protocol):
    """A sum of seconds, such as `observe.reporter.HookDispatcher`."""

    seconds: float


class PausableTimer:
    """Calls ``on_passed`` after running for ``seconds``, not counting ``uncounted`` seconds.

    Stopping and restarting need no timer: the first one fires early and is set again for the rest.
    """

    def __init__(self, seconds: float, on_passed: Callable[[], None], *, uncounted: SecondsCounter) -> None:
        self._seconds = self._remaining = seconds
        self._on_passed = on_passed
        self._uncounted = uncounted
        self._loop = asyncio.get_running_loop()
        self._running = False
        self._started = 0.0
        self._first_started: float | None = None
        self._timer: asyncio.Handle | None = None
        self.late_seconds = 0.0
        """How late it fired because the loop was busy."""

    def start(self) -> None:
        """Start or continue."""
        if self._running:
            return
        self._running = True
        now = self._loop.time()
        self._started = now - self._uncounted.seconds
        if self._first_started is None:
            self._first_started = now
        if self._remaining <= 0:  # a timer would come after what a worker has sent, which may stop this one again
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_soon(self._on_timer)
        elif self._timer is None:
            self._timer = self._loop.call_at(now + self._remaining, self._on_timer)

    def pause(self) -> None:
        """Stop until the next start."""
        if self._running:
            self._running = False
            self._remaining -= self._read_counted_time() - self._started

    @property
    def paused_seconds(self) -> float:
        """How long it has not run since its first start."""
        if self._first_started is None:
            return 0.0
        if self._running:  # the current run counts on both sides
            return self._started + self._uncounted.seconds - self._first_started - (self._seconds - self._remaining)
        return self._loop.time() - self._first_started - (self._seconds - self._remaining)

    @property
    def active_seconds(self) -> float:
        """How long it has run."""
        return self._seconds - self._remaining + (self._read_counted_time() - self._started if self._running else 0.0)

    def close(self) -> None:
        """Stop for good and drop the callback, which refers to this timer."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_passed = _do_nothing

    def _read_counted_time(self) -> float:
        return self._loop.time() - self._uncounted.seconds

    def _on_timer(self) -> None:
        self._timer = None
        if not self._running:
            return
        self.pause()
        if self._remaining > _SLACK_SECONDS:
            self.start()
        else:
            self.late_seconds = max(0.0, -self._remaining)
            on_passed, self._on_passed = self._on_passed, _do_nothing  # once only
            on_passed()


def _do_nothing() -> None:
    """The callback of a closed timer."""
