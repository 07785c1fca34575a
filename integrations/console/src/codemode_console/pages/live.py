"""Server-sent events about records, from one feed of the store's changes for all connections."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import ExitStack, aclosing, contextmanager, suppress
from typing import Any, cast

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from codemode import CodeModeError
from codemode.stores import ALL_TENANTS, Change, InterruptStore

from ..errors import Problem
from ..visits import Principal, audit_tenant, require_principal
from .desk import ConsoleContext

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


HEARTBEAT_SECONDS = 15.0
CHECK_SECONDS = 2.0
"""So often it is asked whether somebody is still who they were."""
LIFE_SECONDS = 600.0
"""So long a connection lasts: the next one is let in by whatever stands in front."""
SEND_SECONDS = 30.0
_RETRY_MS = 2000
_GRACE_SECONDS = 3.0


def routes(desk: ConsoleContext) -> list[BaseRoute]:
    """Return the route of ``/events``."""
    feed = Feed(desk.store)

    async def events(request: Request) -> Response:
        visit, after = require_principal(request), _after(request)
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Problem(403, "This was not sent from a page of the console")
        place = ExitStack()
        seat = place.enter_context(feed.seat(visit.user.name))
        return _Stream(_told(desk, feed, seat, visit, after), seat, place)

    return [Route("/events", events, methods=["GET"])]


class _Stream(EventSourceResponse):
    """A stream that holds a place for as long as it is sent."""

    def __init__(self, told: AsyncIterator[ServerSentEvent], seat: Seat, place: ExitStack) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            told,
            ping=0,
            send_timeout=SEND_SECONDS,
            shutdown_event=cast("Any", seat),  # it is set, and no more
            shutdown_grace_period=_GRACE_SECONDS,
        )
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place, suppress(TimeoutError):  # who takes nothing for so long is gone
            await super().__call__(scope, receive, send)


async def _told(
    desk: ConsoleContext, feed: Feed, seat: Seat, visit: Principal, after: int | None
) -> AsyncIterator[ServerSentEvent]:
    stay = _Stay(visit, seat)
    try:
        head = await desk.store.changes_head()
        sequence = head if after is None else min(after, head)
        yield ServerSentEvent(id=str(sequence), retry=_RETRY_MS, comment="open")
        while await stay.lasts():
            reached = feed.head
            async with aclosing(_new(desk, feed, visit, sequence)) as changes:
                async for change in changes:
                    if not await stay.lasts():
                        break
                    if visit.user.can_see(change.tenant):
                        yield _event(change)
                    sequence = change.sequence
            if not stay.is_over:
                sequence = max(sequence, reached or 0)
                if stay.is_silent():
                    yield ServerSentEvent(id=str(sequence), comment="still here")
                await seat.wait(CHECK_SECONDS)
        if stay.has_ended:
            yield ServerSentEvent(event="ended", data="{}")
    except CodeModeError:
        return  # the database is away: whoever listens comes again


async def _new(desk: ConsoleContext, feed: Feed, visit: Principal, sequence: int) -> AsyncGenerator[Change]:
    """Give the changes behind a sequence that there are, of whichever tenants."""
    found = feed.behind(sequence)
    if found is None:
        tenant = audit_tenant(visit.user)
        async for change in desk.store.changes(tenant=tenant, after=sequence, follow=False):
            yield change
        return
    for change in found:
        yield change


def _event(change: Change) -> ServerSentEvent:
    said = {"sequence": change.sequence, "record": change.record_id, "kind": change.kind}
    return ServerSentEvent(id=str(change.sequence), event="change", data=json.dumps(said))


class _Stay:
    """Whether somebody may go on listening: known still, as the same user, and not for too long."""

    def __init__(self, visit: Principal, seat: Seat) -> None:
        now = asyncio.get_running_loop().time()
        self._visit, self._seat = visit, seat
        self._check, self._beat, self._end = now + CHECK_SECONDS, now + HEARTBEAT_SECONDS, now + LIFE_SECONDS
        self.is_over = self.has_ended = False

    async def lasts(self) -> bool:
        """Say whether they may, as it was not long ago."""
        now = asyncio.get_running_loop().time()
        if not self.is_over and now >= self._check:
            self._check = now + CHECK_SECONDS
            again = await self._visit.reauthenticate()
            self.has_ended = again is None or again.user != self._visit.user
        self.is_over = self.is_over or self.has_ended or self._seat.is_over or now >= self._end
        return not self.is_over

    def is_silent(self) -> bool:
        """Say whether it is time to be heard of, once each time."""
        now = asyncio.get_running_loop().time()
        if now < self._beat:
            return False
        self._beat = now + HEARTBEAT_SECONDS
        return True


def _after(request: Request) -> int | None:
    """Return behind which sequence somebody listens; None is now. Raises `Problem` 400."""
    text = request.headers.get("last-event-id") or request.query_params.get("after") or None
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Problem(400, "There is no such place to listen from")
    return int(text)
