"""Schedule sequential calls and enforce a run's usage limits."""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import RunContext


@dataclass
class CallBudget:
    """Counts the started tool calls of one run that its usage does not include yet."""

    in_flight: int = 0

    def reserve_or_raise(self, ctx: RunContext[Any]) -> CallReservation:
        """Count a call that is about to run. Raises `UsageLimitExceeded` at the limit."""
        if ctx.usage_limits is not None:
            projected = copy.copy(ctx.usage)
            projected.tool_calls += self.in_flight + 1
            ctx.usage_limits.check_before_tool_call(projected)
        return self.reserve_unchecked()

    def reserve_unchecked(self) -> CallReservation:
        """Count a call that the framework has already allowed."""
        self.in_flight += 1
        return CallReservation(self)


@dataclass
class CallReservation:
    """One counted call, released when the framework counts it or when it fails."""

    budget: CallBudget
    is_held: bool = True

    def release(self) -> None:
        """Release the call, once."""
        if self.is_held:
            self.is_held = False
            self.budget.in_flight -= 1


@dataclass
class CallScheduler:
    """Runs the calls of one run concurrently, and sequential ones exclusively, in order of arrival."""

    running: int = 0
    is_exclusive: bool = False
    queue: deque[tuple[bool, asyncio.Future[None]]] = field(default_factory=deque[tuple[bool, asyncio.Future[None]]])

    @asynccontextmanager
    async def acquire(self, *, is_sequential: bool) -> AsyncGenerator[None, None]:
        """Wait until the call may run, and hold its slot inside the block."""
        await self._wait_and_take_slot(is_sequential)
        try:
            yield
        finally:
            self._release_slot()

    async def _wait_and_take_slot(self, is_sequential: bool) -> None:
        if not self.queue and self._can_run(is_sequential):
            self._occupy_slot(is_sequential)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue.append((is_sequential, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release_slot()
            raise

    def _release_slot(self) -> None:
        self.running -= 1
        self.is_exclusive = False
        while self.queue and (self.queue[0][1].done() or self._can_run(self.queue[0][0])):
            is_sequential, turn = self.queue.popleft()
            if not turn.done():
                self._occupy_slot(is_sequential)
                turn.set_result(None)

    def _occupy_slot(self, is_sequential: bool) -> None:
        self.running += 1
        self.is_exclusive = is_sequential

    def _can_run(self, is_sequential: bool) -> bool:
        return not self.is_exclusive and not (is_sequential and self.running)


@dataclass
class SharedCallState:
    """Call budget and scheduler that the programs of one run share."""

    budget: CallBudget = field(default_factory=CallBudget)
    scheduler: CallScheduler = field(default_factory=CallScheduler)
    states: dict[int, Any] = field(
        default_factory=dict[int, Any]
    )  # state backends, by the id of their `ConversationStates`
