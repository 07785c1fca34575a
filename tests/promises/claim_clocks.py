"""Clocks that only waiting moves, and claims that are judged by them."""

from __future__ import annotations

import asyncio
import time

from codemode.continuations.guard import RENEW_SECONDS, Claim, GuardClock

NOW_MS = time.time_ns() // 1_000_000


DAY_MS = 86_400_000


class Clock(GuardClock):
    """A clock that only waiting moves. ``fast_by_ms`` is how much it is ahead of the others'."""

    def __init__(self, fast_by_ms: int = 0) -> None:
        self.waited = 0.0
        self.fast_by_ms = fast_by_ms

    def now_ms(self) -> int:
        return NOW_MS + self.fast_by_ms + int(self.waited * 1000)

    def monotonic_seconds(self) -> float:
        return self.waited

    async def sleep(self, seconds: float) -> None:
        self.waited += seconds
        await asyncio.sleep(0)


class Still(Clock):
    """A clock that nobody's waiting moves."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Standing(Clock):
    """A clock that nobody's waiting moves while it ``stands``: what is done meanwhile takes no time."""

    stands = False

    async def sleep(self, seconds: float) -> None:
        while self.stands:  # noqa: ASYNC110 - time here is made by the test
            await asyncio.sleep(0)
        await super().sleep(seconds)


class Following(Clock):
    """A clock that is never more than half a renewal ahead of another one: time goes by for both."""

    def __init__(self, other: Clock, fast_by_ms: int) -> None:
        super().__init__(fast_by_ms)
        self.other = other

    async def sleep(self, seconds: float) -> None:
        while self.waited + seconds > self.other.waited + RENEW_SECONDS / 2:  # noqa: ASYNC110 - time here is made by the test
            await asyncio.sleep(0)
        await super().sleep(seconds)

    async def caught_up(self) -> None:
        """Wait until this clock is not behind the other."""
        while self.waited < self.other.waited:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)


def claim(key="k", answers="yes", *, expires_at_ms=NOW_MS + 3_600_000):
    return Claim(key, answers, expires_at_ms)
