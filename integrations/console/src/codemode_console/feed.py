"""What happens in a store, read once for all live connections of a console. Knows no pages and no users' rights."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Generator
from contextlib import contextmanager, suppress

from codemode import ALL_TENANTS, Change, CodeModeError, InterruptStore

from .errors import Problem

REMEMBERED = 1000
"""So many changes are kept for all; who is further behind reads them from the store."""
MOST_OF_USER = 20
MOST = 500
_RETRY_SECONDS = 1.0
_log = logging.getLogger("codemode.console")


class Seat:
    """One live connection's place: woken by each change. ``is_over`` once the server is about to end."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.is_over = False

    async def wait(self, seconds: float) -> None:
        """Wait for something new, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()

    def wake(self) -> None:
        """End the wait."""
        self._event.set()

    def set(self) -> None:
        """Say that the server is about to end, as an event of it."""
        self.is_over = True
        self.wake()


class Feed:
    """The last changes of all tenants, read while there is a connection. Holds nothing of any one connection."""

    def __init__(self, store: InterruptStore, *, most_of_user: int = MOST_OF_USER, most: int = MOST) -> None:
        self._store, self._most_of_user, self._most = store, most_of_user, most
        self._seats: set[Seat] = set()
        self._of_users: Counter[str] = Counter()
        self._recent: deque[Change] = deque()
        self._since: int | None = None
        self._reading: asyncio.Task[None] | None = None
        self.head: int | None = None
        """Of which change it knows last; None before it knows of any."""

    def __len__(self) -> int:
        return len(self._seats)

    @contextmanager
    def seat(self, name: str) -> Generator[Seat]:
        """Give a user a place. Raises `Problem` 429 where they have too many, 503 where all have."""
        if self._of_users[name] >= self._most_of_user:
            raise _full(429, "You look at too many pages at once")
        if len(self._seats) >= self._most:
            raise _full(503, "Too many pages are looked at")
        seat = Seat()
        self._seats.add(seat)
        self._of_users[name] += 1
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())
        try:
            yield seat
        finally:
            self._leave(seat, name)

    def behind(self, sequence: int) -> list[Change] | None:
        """Return the changes behind a sequence; None where not all of them are remembered."""
        if self._since is None or sequence < self._since:
            return None
        found: list[Change] = []
        for change in reversed(self._recent):
            if change.sequence <= sequence:
                break
            found.append(change)
        return found[::-1]

    def _leave(self, seat: Seat, name: str) -> None:
        self._seats.discard(seat)
        self._of_users[name] -= 1
        if not self._of_users[name]:
            del self._of_users[name]
        if not self._seats and self._reading is not None:
            self._reading.cancel()
            self._reading = self._since = self.head = None
            self._recent.clear()

    async def _read(self) -> None:
        while True:
            try:
                await self._follow()
            except CodeModeError as error:
                _log.warning("what happens cannot be told for now: %s", error)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _follow(self) -> None:
        if self.head is None:
            self._since = self.head = await self._store.changes_head()
            self._wake()
        async for change in self._store.changes(tenant=ALL_TENANTS, after=self.head):
            self._recent.append(change)
            self.head = change.sequence
            if len(self._recent) > REMEMBERED:
                self._since = self._recent.popleft().sequence
            self._wake()

    def _wake(self) -> None:
        for seat in self._seats:
            seat.wake()


def _full(status: int, title: str) -> Problem:
    return Problem(status, title, "The page works without; look again by yourself.", headers={"Retry-After": "30"})
