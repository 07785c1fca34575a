"""Keep resource subscriptions, also across restarts of servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any
from weakref import WeakSet

import mcp_types as types
from mcp.client.subscriptions import listen
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    event_to_notification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from codemode.trace.visible_text import clip_to_visible_line

from ..upstreams.connection import UnansweredRequestMCPError

RESUBSCRIBE_SECONDS = 20.0
MAX_RESUBSCRIBE_SECONDS = 300.0
SUBSCRIBE_SECONDS = 30.0
_MAX_REFUSED = 1_000

_log = logging.getLogger("codemode.mcp")


class ServerSubscriptions:
    """The subscriptions at one server, renewed after it restarts, until none is wanted.

    ``get_wanted`` returns the URIs; ``on_reconnect`` is called after a restart. ``refusals`` has the reason for each
    refused URI.
    """

    def __init__(
        self,
        upstream: Any,
        get_wanted: Callable[[str], frozenset[str]],
        on_reconnect: Callable[[str], None],
        hide: Callable[[str], str] = str,
    ) -> None:
        self.upstream = upstream
        self.refusals: dict[str, str] = {}
        self._name: str = upstream.config.name
        self._get_wanted = get_wanted
        self._on_reconnect = on_reconnect
        self._hide = hide
        self._session: Any = None
        self._subscribed: set[str] = set()
        self._changed = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    def start_update(self) -> None:
        """Start a task that subscribes to the wanted URIs and unsubscribes from others."""
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._keep_subscribed())

    async def update_and_wait(self) -> None:
        """Subscribe to the wanted URIs and wait for the server's answer, for a limited time."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        self.start_update()
        await asyncio.wait([answered], timeout=SUBSCRIBE_SECONDS)

    def close(self) -> asyncio.Future[Any] | None:
        """Stop; return the ending task."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    async def _keep_subscribed(self) -> None:
        pause = RESUBSCRIBE_SECONDS
        try:
            while self._get_wanted(self._name) or self._subscribed:
                self._changed.clear()
                try:
                    await self._synchronize()
                    pause = RESUBSCRIBE_SECONDS
                except Exception as error:  # noqa: BLE001 - unreachable servers are retried
                    self._log_failure(error)
                    pause = min(pause * 2, MAX_RESUBSCRIBE_SECONDS)
                self._wake_waiters()
                await self._wait_for_change(pause)
        finally:
            self._wake_waiters(is_last=True)

    async def _synchronize(self) -> None:
        wanted = self._get_wanted(self._name)
        async with asyncio.timeout(SUBSCRIBE_SECONDS) as limit:
            await self.upstream.ask(partial(self._synchronize_session, wanted, limit))

    async def _synchronize_session(self, wanted: frozenset[str], limit: asyncio.Timeout, session: Any) -> None:
        if session is not self._session:
            was_away = self._session is not None
            self._session, self._subscribed = session, set()
            if was_away:
                self._on_reconnect(self._name)
        if session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await self._subscribe_and_unsubscribe(session, wanted)
        elif wanted:
            await self._listen(session, wanted, limit)

    async def _subscribe_and_unsubscribe(self, session: Any, wanted: frozenset[str]) -> None:
        for uri in sorted(self._subscribed - wanted):
            self._subscribed.discard(uri)
            await _send_request_or_get_refusal(
                session, types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
            )
        for uri in sorted(wanted - self._subscribed):
            params = types.SubscribeRequestParams(uri=uri)
            refusal = await _send_request_or_get_refusal(session, types.SubscribeRequest(params=params))
            if refusal is None:
                self._subscribed.add(uri)
                continue
            while len(self.refusals) >= _MAX_REFUSED:
                del self.refusals[next(iter(self.refusals))]
            self.refusals[uri] = self._hide(refusal)

    async def _listen(self, session: Any, wanted: frozenset[str], limit: asyncio.Timeout) -> None:
        """Keep a stream open until the wanted resources change; its events arrive as notifications."""
        async with AsyncExitStack() as stack:
            stack.enter_context(self.upstream.keep_running())  # a watched server is not idle
            stream = await stack.enter_async_context(listen(session, resource_subscriptions=sorted(wanted)))
            limit.reschedule(None)
            self._wake_waiters()
            changed = asyncio.ensure_future(self._changed.wait())
            ended = asyncio.ensure_future(_consume(stream))
            try:
                await asyncio.wait({changed, ended}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
                ended.cancel()

    def _wake_waiters(self, *, is_last: bool = False) -> None:
        # The next round answers callers that came after this round read the wanted URIs.
        if is_last or not self._changed.is_set():
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def _wait_for_change(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _log_failure(self, error: Exception) -> None:
        text = clip_to_visible_line(self._hide(f"{type(error).__name__}: {error}"), 300)
        _log.warning("subscriptions to the server %r failed: %s", self._name, text)


async def _send_request_or_get_refusal(session: Any, request: Any) -> str | None:
    try:
        await session.send_request(request, types.EmptyResult)
    except UnansweredRequestMCPError:
        raise
    except MCPError as error:  # the refusal concerns only this URI
        return error.message
    return None


async def _consume(stream: Any) -> None:
    async for _ in stream:
        pass


MAX_SUBSCRIBED_RESOURCES = 1_000
MAX_URI_CHARACTERS = 8_192
"""The length of a watched URI, which is stored while it is watched."""
MAX_CLIENTS = 1_000
NOTIFY_TIMEOUT_SECONDS = 5.0
NOTIFY_INTERVAL_SECONDS = 0.25
"""How long changes are collected; each is then sent to clients once."""


class SubscriptionRefusedError(Exception):
    """A subscription is not possible; the text says why."""


class ClientSubscriptions:
    """Subscriptions of one principal's clients.

    Clients of 2026-07-28 have streams, which ``listening`` serves; earlier clients are notified after they listed or
    subscribed. ``hide`` removes secrets from logged text.
    """

    def __init__(self, hide: Callable[[str], str] = str) -> None:
        self._hide = hide
        self._bus = InMemorySubscriptionBus()
        self.listening = ListenHandler(self._bus, max_subscriptions=MAX_CLIENTS)
        self._list_subscribers: dict[type[ServerEvent], WeakSet[Any]] = {}
        self._watched: dict[tuple[str, str], dict[str, set[Any]]] = {}
        self._connections: WeakSet[Any] = WeakSet()
        self._servers: dict[str, ServerSubscriptions] = {}
        self._pending: dict[ServerEvent, None] = {}
        self._notify_task: asyncio.Task[None] | None = None

    def subscribe_to_list(self, event: type[ServerEvent], connection: Any) -> None:
        """Notify a client of changes of a list from now on."""
        if connection is not None and connection.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            clients = self._list_subscribers.setdefault(event, WeakSet())
            if len(clients) < MAX_CLIENTS:
                clients.add(connection)
                self._unsubscribe_on_close(connection)

    async def subscribe(self, upstream: Any, uri: str, public_uri: str, watcher: Any) -> None:
        """Notify ``watcher`` (a connection or stream) of changes; return when the server was asked.

        Raises `SubscriptionRefusedError`.
        """
        key = upstream.config.name, uri
        require_uris_within_limits([public_uri])
        if key not in self._watched and len(self._watched) >= MAX_SUBSCRIBED_RESOURCES:
            raise SubscriptionRefusedError(f"at most {MAX_SUBSCRIBED_RESOURCES:,} resources can be subscribed to")
        self._watched.setdefault(key, {}).setdefault(public_uri, set()).add(watcher)
        if hasattr(watcher, "exit_stack"):
            self._unsubscribe_on_close(watcher)
        server = self._servers.get(upstream.config.name)
        if server is None or server.upstream is not upstream:
            if server is not None:
                server.close()
            server = self._servers[upstream.config.name] = ServerSubscriptions(
                upstream, self._list_wanted_uris, self._on_server_reconnect, self._hide
            )
        await server.update_and_wait()
        if uri in server.refusals:
            self.unsubscribe(watcher, public_uri)
            raise SubscriptionRefusedError(server.refusals.pop(uri))

    def unsubscribe(self, watcher: Any, public_uri: str | None = None) -> None:
        """End a watcher's subscription to one resource or to all."""
        for key, uris in list(self._watched.items()):
            for uri, watchers in list(uris.items()):
                if public_uri is None or uri == public_uri:
                    watchers.discard(watcher)
                if not watchers:
                    del uris[uri]
            if not uris:
                del self._watched[key]
                self._start_subscription_update(key[0])

    def notify_list_changed(self, event: ServerEvent) -> None:
        """Notify clients of a changed list."""
        self._queue_events([event])

    def notify_resource_updated(self, server: str, uri: str) -> None:
        """Notify watchers of a resource or its parent of a change."""
        for (watched_server, watched), uris in self._watched.items():
            if watched_server == server and (uri == watched or uri.startswith(f"{watched.rstrip('/')}/")):
                self._queue_events(map(ResourceUpdated, uris))

    async def aclose(self) -> None:
        """End all streams and subscriptions."""
        self.listening.close()
        tasks = [server.close() for server in self._servers.values()]
        if self._notify_task is not None:
            self._notify_task.cancel()
        await asyncio.gather(
            *(task for task in [*tasks, self._notify_task] if task is not None), return_exceptions=True
        )

    def _unsubscribe_on_close(self, connection: Any) -> None:
        if connection not in self._connections:
            self._connections.add(connection)
            connection.exit_stack.callback(self._on_disconnect, connection)

    def _on_disconnect(self, connection: Any) -> None:
        for clients in self._list_subscribers.values():
            clients.discard(connection)
        self.unsubscribe(connection)

    def _list_wanted_uris(self, server: str) -> frozenset[str]:
        return frozenset(uri for watched_server, uri in self._watched if watched_server == server)

    def _start_subscription_update(self, server: str) -> None:
        if (subscriptions := self._servers.get(server)) is not None:
            subscriptions.start_update()

    def _on_server_reconnect(self, server: str) -> None:
        """Notify all watchers: any resource may have changed while the server was away."""
        for uri in self._list_wanted_uris(server):
            self.notify_resource_updated(server, uri)

    def _queue_events(self, events: Iterable[ServerEvent]) -> None:
        self._pending.update(dict.fromkeys(events))
        if self._pending and (self._notify_task is None or self._notify_task.done()):
            self._notify_task = asyncio.get_running_loop().create_task(self._notify_clients())

    async def _notify_clients(self) -> None:
        while self._pending:
            events = list(self._pending)
            self._pending.clear()
            for event in events:
                await self._bus.publish(event)
                await asyncio.gather(*(_notify_client(client, event) for client in self._list_clients_of(event)))
            await asyncio.sleep(NOTIFY_INTERVAL_SECONDS)

    def _list_clients_of(self, event: ServerEvent) -> set[Any]:
        if not isinstance(event, ResourceUpdated):
            return set(self._list_subscribers.get(type(event), ()))
        watcher_sets = (uris.get(event.uri, ()) for uris in self._watched.values())
        return {watcher for watchers in watcher_sets for watcher in watchers if hasattr(watcher, "notify")}


def require_uris_within_limits(uris: Collection[str]) -> None:
    """Raise `SubscriptionRefusedError` for too many or too long URIs."""
    if len(uris) > MAX_SUBSCRIBED_RESOURCES:
        raise SubscriptionRefusedError(f"at most {MAX_SUBSCRIBED_RESOURCES:,} resources can be subscribed to")
    if any(len(uri) > MAX_URI_CHARACTERS for uri in uris):
        raise SubscriptionRefusedError(f"a URI may have at most {MAX_URI_CHARACTERS:,} characters")


async def _notify_client(connection: Any, event: ServerEvent) -> None:
    notification = event_to_notification(event, {}).model_dump(by_alias=True, mode="json", exclude_none=True)
    try:
        async with asyncio.timeout(NOTIFY_TIMEOUT_SECONDS):
            await connection.notify(
                notification["method"], {key: value for key, value in notification["params"].items() if value}
            )
    except Exception as error:  # noqa: BLE001 - a client that does not read must not affect the others
        _log.debug("%s could not be sent to a client: %s", notification["method"], type(error).__name__)


EVENT_OF_NOTIFICATION: dict[type[Any], ServerEvent] = {
    types.PromptListChangedNotification: PromptsListChanged(),
    types.ResourceListChangedNotification: ResourcesListChanged(),
}
"""The event for clients by the class of a server's notification."""
