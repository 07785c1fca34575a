"""Share a server's concurrent calls fairly among the users and programs that make them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from ..gateway.principals import LOCAL
from .origins import origin_of

Caller = tuple[str, str]
"""A user and the program that calls for them."""


def caller_of(context: Any) -> Caller:
    """Return who makes a call, from its `ToolCallContext`."""
    origin = origin_of(context)
    if origin is None:
        return LOCAL.id, str(getattr(context, "outer_tool_call_id", None) or "")
    return origin.principal.id, origin.outer_id or ""


class FairSlots:
    """Slots for at most ``limit`` calls at a time, of which one user and one program have at most ``share``.

    Those that wait get a free slot in turn: users first, then the programs of each. The user of a gateway that serves
    one alone is not limited, only the programs are.
    """

    def __init__(self, limit: int, share: int) -> None:
        self._free = limit
        self._share = share
        self._held = Counter[str | Caller]()
        self._waiting: dict[str, dict[str, deque[asyncio.Future[None]]]] = {}

    @asynccontextmanager
    async def slot(self, caller: Caller) -> AsyncGenerator[None]:
        """Hold a slot while the block runs, once there is one."""
        await self._take(caller)
        try:
            yield
        finally:
            self._give_back(caller)

    async def _take(self, caller: Caller) -> None:
        # Whoever waits while a slot is free is at the limit of their share, and has no claim to it.
        if self._free and self._may_have(caller):
            self._hold(caller)
            return
        user, program = caller
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, {}).setdefault(program, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(caller)
            else:
                self._leave(caller, turn)
            raise

    def _may_have(self, caller: Caller) -> bool:
        user = caller[0]
        return self._held[caller] < self._share and (user == LOCAL.id or self._held[user] < self._share)

    def _hold(self, caller: Caller) -> None:
        self._free -= 1
        self._held[caller] += 1
        self._held[caller[0]] += 1

    def _give_back(self, caller: Caller) -> None:
        self._free += 1
        for holder in (caller, caller[0]):
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]
        while self._free and self._grant_next():
            pass

    def _grant_next(self) -> bool:
        """Give a slot to the next one that may have it; False where nobody may."""
        for user, programs in self._waiting.items():
            for program, turns in programs.items():
                if not self._may_have((user, program)):
                    continue
                turn = turns.popleft()
                del programs[program], self._waiting[user]  # to the end of both lines
                if turns:
                    programs[program] = turns
                if programs:
                    self._waiting[user] = programs
                if not turn.done():
                    self._hold((user, program))
                    turn.set_result(None)
                return True
        return False

    def _leave(self, caller: Caller, turn: asyncio.Future[None]) -> None:
        user, program = caller
        programs = self._waiting.get(user, {})
        if turn in (turns := programs.get(program, deque())):
            turns.remove(turn)
        if program in programs and not turns:
            del programs[program]
        if user in self._waiting and not programs:
            del self._waiting[user]
