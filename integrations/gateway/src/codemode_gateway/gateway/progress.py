"""What a client is told while its program runs: that something goes on. Knows no program."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

_EVERY_SECONDS = 10.0
_LOOK_SECONDS = 0.5
_MOST_CHARACTERS = 200
_MOST_WAITING = 64
_log = logging.getLogger("codemode.mcp")


class Progress:
    """Tells a client that asked for it of every step, and, while there is none, every ten seconds that all is well.

    ``status`` gives what is waited for, None for nothing; a new one is told soon. The numbers only rise. A client that
    reads slowly misses steps, never the last one.
    """

    def __init__(
        self,
        session: Any,
        *,
        every_seconds: float = _EVERY_SECONDS,
        status: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._session = session
        self._every = every_seconds
        self._status = status
        self._last_status: str | None = None
        self._waiting: deque[str | None] = deque(maxlen=_MOST_WAITING)
        self._news = asyncio.Event()
        self._told = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._tell())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()

    def step(self, message: str | None) -> None:
        """Tell of a step, soon."""
        self._waiting.append(None if message is None else message[:_MOST_CHARACTERS])
        self._news.set()

    async def __call__(self, message: str | None) -> None:
        """Do what `step` does."""
        self.step(message)

    async def _tell(self) -> None:
        try:
            while True:
                if not self._waiting:
                    await self._wait()
                self._told += 1
                message = self._waiting.popleft() if self._waiting else self._status() or "running"
                await self._session.report_progress(float(self._told), None, message)
        except Exception as error:  # noqa: BLE001 - a client that has gone misses nothing
            _log.debug("no more progress is told: %s", type(error).__name__)

    async def _wait(self) -> None:
        """Wait for a step or another status, at most as long as nothing may be told."""
        self._news.clear()
        left = self._every
        while left > 0 and not self._news.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(left, _LOOK_SECONDS))
            left -= _LOOK_SECONDS
            before, self._last_status = self._last_status, self._status()
            if self._last_status not in (None, before):
                return
