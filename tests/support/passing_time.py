"""Time that passes at once for every deadline of a run, so that no test waits for one or has to be quicker than one.

A program that must get somewhere before it is too late needs long on a busy machine. Its limit is generous, then, and
the tool that it calls lets the time pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from codemode.host.clock import PausableTimer


class PassingTime:
    """What the deadlines of this process take for the time. ``patch`` sets attributes; a monkeypatch's undoes it."""

    def __init__(self, patch: Callable[[Any, str, Any], object] = setattr) -> None:
        self._patch = patch
        self._skipped = self._blocked = 0.0
        self._clocks: list[weakref.ref[PausableTimer]] = []  # of several threads
        begin = PausableTimer.__init__

        def followed(clock: PausableTimer, *arguments: Any, **named: Any) -> None:
            begin(clock, *arguments, **named)
            clock._loop = _Ahead(clock._loop, lambda: self._skipped)  # type: ignore[assignment]
            self._clocks.append(weakref.ref(clock))

        patch(PausableTimer, "__init__", followed)

    def skip(self, seconds: float) -> None:
        """Let so many seconds pass. Deadlines that run and are reached so ring in their loop's next turn."""
        self._skipped += seconds
        for clock in (one() for one in tuple(self._clocks)):
            if clock is not None:
                loop: Any = clock._loop
                with contextlib.suppress(RuntimeError):  # of a loop that is closed
                    loop.loop.call_soon_threadsafe(_look, clock)

    def block(self, seconds: float) -> None:
        """Let them pass in a hook, as if it kept the loop for so long: it is not the program's time."""
        from codemode.observe import reporter  # late: a host may watch what is imported

        if not self._blocked:
            ahead = SimpleNamespace(perf_counter=lambda: time.perf_counter() + self._blocked)
            self._patch(reporter, "time", ahead)
        self._blocked += seconds
        self.skip(seconds)


def _look(clock: PausableTimer) -> None:
    if clock._timer is not None:
        clock._timer.cancel()
        clock._on_timer()


class _Ahead:
    """A loop's timers, by a clock that is ahead of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, skipped: Callable[[], float]) -> None:
        self.loop = loop
        self._skipped = skipped

    def time(self) -> float:
        return self.loop.time() + self._skipped()

    def call_soon(self, callback: Callable[[], object]) -> asyncio.Handle:
        return self.loop.call_soon(callback)

    def call_at(self, when: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return self.loop.call_at(when - self._skipped(), callback)
