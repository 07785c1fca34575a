"""What happens to records, told as it happens: server-sent events, with the store's sequences as ids."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, aclosing, suppress
from typing import Any, cast

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from codemode import Change, CodeModeError

from ..errors import Problem
from ..feed import Feed, Seat
from ..visits import Visit, audit_tenant, visit_of
from .desk import Desk

HEARTBEAT_SECONDS = 15.0
CHECK_SECONDS = 2.0
"""So often it is asked whether somebody is still who they were."""
LIFE_SECONDS = 600.0
"""So long a connection lasts: the next one is let in by whatever stands in front."""
SEND_SECONDS = 30.0
_RETRY_MS = 2000
_GRACE_SECONDS = 3.0


def routes(desk: Desk) -> list[BaseRoute]:
    """Return the route of ``/events``."""
    feed = Feed(desk.store)

    async def events(request: Request) -> Response:
        visit, after = visit_of(request), _after(request)
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


async def _told(desk: Desk, feed: Feed, seat: Seat, visit: Visit, after: int | None) -> AsyncIterator[ServerSentEvent]:
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
                    if visit.user.sees(change.tenant):
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


async def _new(desk: Desk, feed: Feed, visit: Visit, sequence: int) -> AsyncGenerator[Change]:
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

    def __init__(self, visit: Visit, seat: Seat) -> None:
        now = asyncio.get_running_loop().time()
        self._visit, self._seat = visit, seat
        self._check, self._beat, self._end = now + CHECK_SECONDS, now + HEARTBEAT_SECONDS, now + LIFE_SECONDS
        self.is_over = self.has_ended = False

    async def lasts(self) -> bool:
        """Say whether they may, as it was not long ago."""
        now = asyncio.get_running_loop().time()
        if not self.is_over and now >= self._check:
            self._check = now + CHECK_SECONDS
            again = await self._visit.again()
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
