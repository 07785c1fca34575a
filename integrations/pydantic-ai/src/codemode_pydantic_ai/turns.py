"""Whose turn it is, and how many calls a run may still make. Counts; calls nothing."""

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
    """Counts the tool calls of one run that have begun and are not in its usage yet."""

    in_flight: int = 0

    def reserve(self, ctx: RunContext[Any]) -> Reservation:
        """Count a call that is about to run. Raises `UsageLimitExceeded` when it would be one too many."""
        if ctx.usage_limits is not None:
            projected = copy.copy(ctx.usage)
            projected.tool_calls += self.in_flight + 1
            ctx.usage_limits.check_before_tool_call(projected)
        return self.begin()

    def begin(self) -> Reservation:
        """Count a call that the framework has already allowed."""
        self.in_flight += 1
        return Reservation(self)


@dataclass
class Reservation:
    """One counted call, given back once: when the framework has counted it, or when it has failed."""

    budget: CallBudget
    is_held: bool = True

    def release(self) -> None:
        """Give it back."""
        if self.is_held:
            self.is_held = False
            self.budget.in_flight -= 1


@dataclass
class Turns:
    """Lets the calls of one run go side by side, and a ``sequential`` one alone, in order of arrival."""

    running: int = 0
    is_alone: bool = False
    queue: deque[tuple[bool, asyncio.Future[None]]] = field(default_factory=deque[tuple[bool, asyncio.Future[None]]])

    @asynccontextmanager
    async def take(self, *, alone: bool) -> AsyncGenerator[None, None]:
        """Wait for the turn of one call and hold it."""
        await self._enter(alone)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, alone: bool) -> None:
        if not self.queue and self._fits(alone):
            self._begin(alone)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue.append((alone, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        self.running -= 1
        self.is_alone = False
        while self.queue and (self.queue[0][1].done() or self._fits(self.queue[0][0])):
            alone, turn = self.queue.popleft()
            if not turn.done():
                self._begin(alone)
                turn.set_result(None)

    def _begin(self, alone: bool) -> None:
        self.running += 1
        self.is_alone = alone

    def _fits(self, alone: bool) -> bool:
        return not self.is_alone and not (alone and self.running)


@dataclass
class SharedTurns:
    """What the programs of one run share of both."""

    budget: CallBudget = field(default_factory=CallBudget)
    turns: Turns = field(default_factory=Turns)
    states: dict[int, Any] = field(default_factory=dict[int, Any])  # where they leave values for each other
