"""The time that one call has at its server; it stands still while a person is asked."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Clock:
    """Gives a call so many seconds, over all the rounds that it takes."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._stops = 0
        self._deadline: asyncio.Timeout | None = None

    @property
    def has_passed(self) -> bool:
        """True once the time is over."""
        return self._deadline is not None and self._deadline.expired()

    @property
    def is_stopped(self) -> bool:
        """True while the time stands still."""
        return self._deadline is not None and self._deadline.when() is None

    def started(self) -> asyncio.Timeout:
        """Return a context that raises `TimeoutError` when the time is over."""
        self._deadline = asyncio.timeout(self._left)
        return self._deadline

    def stop(self) -> None:
        """Let it stand still."""
        self._stops += 1
        when = None if self._deadline is None else self._deadline.when()
        if self._stops == 1 and when is not None:
            self._left = max(when - asyncio.get_running_loop().time(), 0)
            self._set(None)

    def go_on(self) -> None:
        """Let it go on where it stood, once nobody has it stand still."""
        self._stops -= 1
        if not self._stops:
            self._set(asyncio.get_running_loop().time() + self._left)

    def _set(self, when: float | None) -> None:
        with suppress(RuntimeError):  # it has passed, or its call has ended
            if self._deadline is not None:
                self._deadline.reschedule(when)
