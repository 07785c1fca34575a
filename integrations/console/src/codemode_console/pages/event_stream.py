"""Stream record changes to browsers as server-sent events."""

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
from ..principals import Principal, get_audit_tenant, require_principal
from .console_context import ConsoleContext

MAX_REMEMBERED_CHANGES = 1000
"""Changes kept in memory; older ones are read from the store."""
MAX_CONNECTIONS_PER_USER = 20
MAX_CONNECTIONS = 500
_RETRY_SECONDS = 1.0
_log = logging.getLogger("codemode.console")


class Subscriber:
    """A live connection, woken by each change. ``is_stopping`` once the server stops."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.is_stopping = False

    async def wait_for_change(self, seconds: float) -> None:
        """Wait for a change, at most ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()

    def wake(self) -> None:
        """End `wait_for_change`."""
        self._event.set()

    def set(self) -> None:
        """Announce that the server stops; called by the response like an event."""
        self.is_stopping = True
        self.wake()


class ChangeFeed:
    """The last changes of all tenants, read while there are subscribers."""

    def __init__(
        self,
        store: InterruptStore,
        *,
        max_per_user: int = MAX_CONNECTIONS_PER_USER,
        max_subscribers: int = MAX_CONNECTIONS,
    ) -> None:
        self._store, self._max_per_user, self._max_subscribers = store, max_per_user, max_subscribers
        self._subscribers: set[Subscriber] = set()
        self._counts_by_user: Counter[str] = Counter()
        self._recent: deque[Change] = deque()
        self._remembered_since: int | None = None
        self._reading: asyncio.Task[None] | None = None
        self.head: int | None = None
        """Sequence of the last change read from the store; None before the first read."""

    def __len__(self) -> int:
        return len(self._subscribers)

    @contextmanager
    def subscribe(self, user_name: str) -> Generator[Subscriber]:
        """Add a subscriber. Raises `Problem` 429 per user and 503 in total."""
        if self._counts_by_user[user_name] >= self._max_per_user:
            raise _too_many_connections_problem(429, "You have too many pages open")
        if len(self._subscribers) >= self._max_subscribers:
            raise _too_many_connections_problem(503, "Too many pages are open")
        subscriber = Subscriber()
        self._subscribers.add(subscriber)
        self._counts_by_user[user_name] += 1
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._follow_changes_with_retries())
        try:
            yield subscriber
        finally:
            self._unsubscribe(subscriber, user_name)

    def find_changes_after(self, sequence: int) -> list[Change] | None:
        """Return the changes after a sequence; None if some are no longer remembered."""
        if self._remembered_since is None or sequence < self._remembered_since:
            return None
        changes: list[Change] = []
        for change in reversed(self._recent):
            if change.sequence <= sequence:
                break
            changes.append(change)
        return changes[::-1]

    def _unsubscribe(self, subscriber: Subscriber, user_name: str) -> None:
        self._subscribers.discard(subscriber)
        self._counts_by_user[user_name] -= 1
        if not self._counts_by_user[user_name]:
            del self._counts_by_user[user_name]
        if not self._subscribers and self._reading is not None:
            self._reading.cancel()
            self._reading = self._remembered_since = self.head = None
            self._recent.clear()

    async def _follow_changes_with_retries(self) -> None:
        while True:
            try:
                await self._follow_changes()
            except CodeModeError as error:
                _log.warning("live updates are unavailable: %s", error)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _follow_changes(self) -> None:
        if self.head is None:
            self._remembered_since = self.head = await self._store.changes_head()
            self._wake_subscribers()
        async for change in self._store.changes(tenant=ALL_TENANTS, after=self.head):
            self._recent.append(change)
            self.head = change.sequence
            if len(self._recent) > MAX_REMEMBERED_CHANGES:
                self._remembered_since = self._recent.popleft().sequence
            self._wake_subscribers()

    def _wake_subscribers(self) -> None:
        for subscriber in self._subscribers:
            subscriber.wake()


def _too_many_connections_problem(status: int, title: str) -> Problem:
    return Problem(
        status, title, "The page works without live updates; reload it yourself.", headers={"Retry-After": "30"}
    )


HEARTBEAT_SECONDS = 15.0
REAUTHENTICATE_SECONDS = 2.0
"""Interval of the check that the user is still signed in."""
MAX_CONNECTION_SECONDS = 600.0
"""Connections end after this time, so that a proxy authenticates the next one."""
SEND_TIMEOUT_SECONDS = 30.0
_RETRY_MS = 2000
_GRACE_SECONDS = 3.0


def routes(context: ConsoleContext) -> list[BaseRoute]:
    """Return the route of ``/events``."""
    feed = ChangeFeed(context.store)

    async def stream_changes(request: Request) -> Response:
        principal, after = require_principal(request), _parse_start_sequence(request)
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Problem(403, "This was not sent from a page of the console")
        slot = ExitStack()
        subscriber = slot.enter_context(feed.subscribe(principal.user.name))
        return _EventStreamResponse(_stream_events(context, feed, subscriber, principal, after), subscriber, slot)

    return [Route("/events", stream_changes, methods=["GET"])]


class _EventStreamResponse(EventSourceResponse):
    """A stream that holds its slot while it is sent."""

    def __init__(self, events: AsyncIterator[ServerSentEvent], subscriber: Subscriber, slot: ExitStack) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            events,
            ping=0,
            send_timeout=SEND_TIMEOUT_SECONDS,
            shutdown_event=cast("Any", subscriber),  # only its `set` is called
            shutdown_grace_period=_GRACE_SECONDS,
        )
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slot, suppress(TimeoutError):  # the client no longer reads
            await super().__call__(scope, receive, send)


async def _stream_events(
    context: ConsoleContext, feed: ChangeFeed, subscriber: Subscriber, principal: Principal, after: int | None
) -> AsyncIterator[ServerSentEvent]:
    lifetime = _ConnectionLifetime(principal, subscriber)
    try:
        head = await context.store.changes_head()
        sequence = head if after is None else min(after, head)
        yield ServerSentEvent(id=str(sequence), retry=_RETRY_MS, comment="open")
        while await lifetime.reauthenticate_and_check_alive():
            feed_head = feed.head
            async with aclosing(_iterate_changes_after(context, feed, principal, sequence)) as changes:
                async for change in changes:
                    if not await lifetime.reauthenticate_and_check_alive():
                        break
                    if principal.user.can_see(change.tenant):
                        yield _to_event(change)
                    sequence = change.sequence
            if not lifetime.is_over:
                sequence = max(sequence, feed_head or 0)
                if lifetime.claim_due_heartbeat():
                    yield ServerSentEvent(id=str(sequence), comment="still here")
                await subscriber.wait_for_change(REAUTHENTICATE_SECONDS)
        if lifetime.is_signed_out:
            yield ServerSentEvent(event="ended", data="{}")
    except CodeModeError:
        return  # the client reconnects


async def _iterate_changes_after(
    context: ConsoleContext, feed: ChangeFeed, principal: Principal, sequence: int
) -> AsyncGenerator[Change]:
    """Yield the changes after a sequence, of all visible tenants."""
    remembered = feed.find_changes_after(sequence)
    if remembered is None:
        tenant = get_audit_tenant(principal.user)
        async for change in context.store.changes(tenant=tenant, after=sequence, follow=False):
            yield change
        return
    for change in remembered:
        yield change


def _to_event(change: Change) -> ServerSentEvent:
    payload = {"sequence": change.sequence, "record": change.record_id, "kind": change.kind}
    return ServerSentEvent(id=str(change.sequence), event="change", data=json.dumps(payload))


class _ConnectionLifetime:
    """Ends a connection after a sign-out, a change of user or `MAX_CONNECTION_SECONDS`."""

    def __init__(self, principal: Principal, subscriber: Subscriber) -> None:
        now = asyncio.get_running_loop().time()
        self._principal, self._subscriber = principal, subscriber
        self._next_check, self._next_heartbeat, self._end = (
            now + REAUTHENTICATE_SECONDS,
            now + HEARTBEAT_SECONDS,
            now + MAX_CONNECTION_SECONDS,
        )
        self.is_over = self.is_signed_out = False

    async def reauthenticate_and_check_alive(self) -> bool:
        """Return whether the connection may continue, checked every few seconds."""
        now = asyncio.get_running_loop().time()
        if not self.is_over and now >= self._next_check:
            self._next_check = now + REAUTHENTICATE_SECONDS
            current = await self._principal.reauthenticate()
            self.is_signed_out = current is None or current.user != self._principal.user
        self.is_over = self.is_over or self.is_signed_out or self._subscriber.is_stopping or now >= self._end
        return not self.is_over

    def claim_due_heartbeat(self) -> bool:
        """Return whether a heartbeat is due, once for each."""
        now = asyncio.get_running_loop().time()
        if now < self._next_heartbeat:
            return False
        self._next_heartbeat = now + HEARTBEAT_SECONDS
        return True


def _parse_start_sequence(request: Request) -> int | None:
    """Return the sequence to start after; None for now. Raises `Problem` 400."""
    text = request.headers.get("last-event-id") or request.query_params.get("after") or None
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Problem(400, "The event id is not valid")
    return int(text)
