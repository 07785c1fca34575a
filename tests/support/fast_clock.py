"""A clock of guards and journals for tests whose owners are gone."""

from __future__ import annotations

import asyncio

from codemode.continuations.guard import GuardClock


class Fast(GuardClock):
    """A clock by which those who wait do not: what they wait for has lapsed when they ask again."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic_seconds(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += 20.0
        await asyncio.sleep(0)
