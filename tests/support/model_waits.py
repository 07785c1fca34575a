"""Calls of exec and wait that wait no longer when a test says so, however much of their time is left."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from waiting import until

from codemode.execution.suspendable_runner import SuspendableRunner


class ModelWaits:
    """The calls of a model that wait for calls of programs. With a long time, only `end` ends them early."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._runners: weakref.WeakSet[SuspendableRunner] = weakref.WeakSet()
        start = SuspendableRunner._start_wait_clock

        def noted(runner: SuspendableRunner) -> None:
            self._runners.add(runner)
            start(runner)

        monkeypatch.setattr(SuspendableRunner, "_start_wait_clock", noted)

    def end(self) -> None:
        """Let those that wait now be over, as their time would: works from any thread."""
        for runner in [*self._runners]:
            runner._loop.call_soon_threadsafe(_end, runner)

    async def left(self, call: Awaitable[Any], begun: Callable[[], object]) -> Any:
        """Return what a call gives that waits until something has begun, and then no longer."""
        made = asyncio.ensure_future(call)
        await until(begun)
        self.end()
        return await made


def _end(runner: SuspendableRunner) -> None:
    if not (runner.stop_reason.done() or runner.ended.done()):
        runner.end_wait()
