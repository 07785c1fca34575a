"""Subscriptions to resources, also across restarts of servers."""

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

from codemode.trace.visible_text import one_line

from ..upstreams.connection import LostRequestError

LOOK_SECONDS = 20.0
MAX_LOOK_SECONDS = 300.0
SUBSCRIBE_SECONDS = 30.0
_MAX_REFUSED = 1_000

_log = logging.getLogger("codemode.mcp")


class Keeper:
    """The subscriptions of one server. Ends when nothing of it is watched, and begins again.

    ``wanted`` tells the URIs, ``renewed`` hears that the server was away. ``refused`` are URIs, and why.
    """

    def __init__(
        self,
        upstream: Any,
        wanted: Callable[[str], frozenset[str]],
        renewed: Callable[[str], None],
        hide: Callable[[str], str] = str,
    ) -> None:
        self.upstream = upstream
        self.refused: dict[str, str] = {}
        self._name: str = upstream.config.name
        self._wanted = wanted
        self._renewed = renewed
        self._hide = hide
        self._session: Any = None
        self._subscribed: set[str] = set()
        self._changed = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Subscribe to what is wanted now."""
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._keep())

    async def looked(self) -> None:
        """Subscribe to what is wanted now, and return when the server has answered, or takes long."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        self.look()
        await asyncio.wait([answered], timeout=SUBSCRIBE_SECONDS)

    def close(self) -> asyncio.Future[Any] | None:
        """Stop, and return what ends then."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    async def _keep(self) -> None:
        pause = LOOK_SECONDS
        try:
            while self._wanted(self._name) or self._subscribed:
                self._changed.clear()
                try:
                    await self._kept()
                    pause = LOOK_SECONDS
                except Exception as error:  # noqa: BLE001 - a server that cannot be reached is tried again
                    self._log(error)
                    pause = min(pause * 2, MAX_LOOK_SECONDS)
                self._answered()
                await self._pause(pause)
        finally:
            self._answered(is_last=True)

    async def _kept(self) -> None:
        wanted = self._wanted(self._name)
        async with asyncio.timeout(SUBSCRIBE_SECONDS) as limit:
            await self.upstream.ask(partial(self._keep_over, wanted, limit))

    async def _keep_over(self, wanted: frozenset[str], limit: asyncio.Timeout, session: Any) -> None:
        if session is not self._session:
            was_away = self._session is not None
            self._session, self._subscribed = session, set()
            if was_away:
                self._renewed(self._name)
        if session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await self._subscribe(session, wanted)
        elif wanted:
            await self._listen(session, wanted, limit)

    async def _subscribe(self, session: Any, wanted: frozenset[str]) -> None:
        for uri in sorted(self._subscribed - wanted):
            self._subscribed.discard(uri)
            await _refusal(session, types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri)))
        for uri in sorted(wanted - self._subscribed):
            params = types.SubscribeRequestParams(uri=uri)
            refusal = await _refusal(session, types.SubscribeRequest(params=params))
            if refusal is None:
                self._subscribed.add(uri)
                continue
            while len(self.refused) >= _MAX_REFUSED:
                del self.refused[next(iter(self.refused))]
            self.refused[uri] = self._hide(refusal)

    async def _listen(self, session: Any, wanted: frozenset[str], limit: asyncio.Timeout) -> None:
        """Keep a stream open until other resources are wanted; its events come as notifications do."""
        async with AsyncExitStack() as stack:
            stack.enter_context(self.upstream.held())  # what somebody watches is not idle
            stream = await stack.enter_async_context(listen(session, resource_subscriptions=sorted(wanted)))
            limit.reschedule(None)
            self._answered()
            changed = asyncio.ensure_future(self._changed.wait())
            ended = asyncio.ensure_future(_read(stream))
            try:
                await asyncio.wait({changed, ended}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
                ended.cancel()

    def _answered(self, *, is_last: bool = False) -> None:
        # Whoever has come since the last look at what is wanted is answered by the next.
        if is_last or not self._changed.is_set():
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                if not one.done():
                    one.set_result(None)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _log(self, error: Exception) -> None:
        said = one_line(self._hide(f"{type(error).__name__}: {error}"), 300)
        _log.warning("subscriptions to the server %r failed: %s", self._name, said)


async def _refusal(session: Any, request: Any) -> str | None:
    try:
        await session.send_request(request, types.EmptyResult)
    except LostRequestError:
        raise
    except MCPError as error:  # which is about this one alone
        return error.message
    return None


async def _read(stream: Any) -> None:
    async for _ in stream:
        pass


MAX_WATCHED = 1_000
MAX_URI_CHARACTERS = 8_192
"""Of a resource that is watched: they are kept for as long as somebody does."""
MAX_CLIENTS = 1_000
TELL_SECONDS = 5.0
BETWEEN_SECONDS = 0.25
"""How long what servers say is gathered before clients are told again: each change once, however often it is said."""


class NotWatched(Exception):  # noqa: N818 - an answer
    """Nobody can subscribe to this; the text says why."""


class Watching:
    """Who is told of what, for the clients of one principal.

    Clients of 2026-07-28 listen on streams of their own, which ``listening`` serves; earlier ones are told once they
    have listed, or subscribed to, what changes. ``hide`` removes secrets from what is logged.
    """

    def __init__(self, hide: Callable[[str], str] = str) -> None:
        self._hide = hide
        self._bus = InMemorySubscriptionBus()
        self.listening = ListenHandler(self._bus, max_subscriptions=MAX_CLIENTS)
        self._listed: dict[type[ServerEvent], WeakSet[Any]] = {}
        self._watched: dict[tuple[str, str], dict[str, set[Any]]] = {}
        self._known: WeakSet[Any] = WeakSet()
        self._keepers: dict[str, Keeper] = {}
        self._pending: dict[ServerEvent, None] = {}
        self._teller: asyncio.Task[None] | None = None

    def has_listed(self, event: type[ServerEvent], connection: Any) -> None:
        """Tell a client from now on when such a list changes."""
        if connection is not None and connection.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            clients = self._listed.setdefault(event, WeakSet())
            if len(clients) < MAX_CLIENTS:
                clients.add(connection)
                self._until_closed(connection)

    async def watch(self, upstream: Any, uri: str, public: str, watcher: Any) -> None:
        """Tell ``watcher``, a client's connection or a stream, when this changes; return when its server knows.

        Raises `NotWatched` for a resource too many, and where the server refuses.
        """
        key = upstream.config.name, uri
        require_short([public])
        if key not in self._watched and len(self._watched) >= MAX_WATCHED:
            raise NotWatched(f"at most {MAX_WATCHED:,} resources can be subscribed to")
        self._watched.setdefault(key, {}).setdefault(public, set()).add(watcher)
        if hasattr(watcher, "exit_stack"):
            self._until_closed(watcher)
        keeper = self._keepers.get(upstream.config.name)
        if keeper is None or keeper.upstream is not upstream:
            if keeper is not None:
                keeper.close()
            keeper = self._keepers[upstream.config.name] = Keeper(upstream, self._wanted, self._renewed, self._hide)
        await keeper.looked()
        if uri in keeper.refused:
            self.forget(watcher, public)
            raise NotWatched(keeper.refused.pop(uri))

    def forget(self, watcher: Any, public: str | None = None) -> None:
        """Tell a watcher no more, of this resource or of any."""
        for key, told in list(self._watched.items()):
            for uri, watchers in list(told.items()):
                if public is None or uri == public:
                    watchers.discard(watcher)
                if not watchers:
                    del told[uri]
            if not told:
                del self._watched[key]
                self._look(key[0])

    def list_changed(self, event: ServerEvent) -> None:
        """Tell clients that a list has changed."""
        self._tell([event])

    def updated(self, server: str, uri: str) -> None:
        """Tell those who watch it, or what it is a part of, that a resource has changed."""
        for (of, watched), told in self._watched.items():
            if of == server and (uri == watched or uri.startswith(f"{watched.rstrip('/')}/")):
                self._tell(map(ResourceUpdated, told))

    async def aclose(self) -> None:
        """End all streams and subscriptions."""
        self.listening.close()
        tasks = [keeper.close() for keeper in self._keepers.values()]
        if self._teller is not None:
            self._teller.cancel()
        await asyncio.gather(*(one for one in [*tasks, self._teller] if one is not None), return_exceptions=True)

    def _until_closed(self, connection: Any) -> None:
        if connection not in self._known:
            self._known.add(connection)
            connection.exit_stack.callback(self._left, connection)

    def _left(self, connection: Any) -> None:
        for clients in self._listed.values():
            clients.discard(connection)
        self.forget(connection)

    def _wanted(self, server: str) -> frozenset[str]:
        return frozenset(uri for of, uri in self._watched if of == server)

    def _look(self, server: str) -> None:
        if (keeper := self._keepers.get(server)) is not None:
            keeper.look()

    def _renewed(self, server: str) -> None:
        """Tell that anything may have changed while a server was away."""
        for uri in self._wanted(server):
            self.updated(server, uri)

    def _tell(self, events: Iterable[ServerEvent]) -> None:
        self._pending.update(dict.fromkeys(events))
        if self._pending and (self._teller is None or self._teller.done()):
            self._teller = asyncio.get_running_loop().create_task(self._told())

    async def _told(self) -> None:
        while self._pending:
            events = list(self._pending)
            self._pending.clear()
            for event in events:
                await self._bus.publish(event)
                await asyncio.gather(*(_tell(one, event) for one in self._clients_of(event)))
            await asyncio.sleep(BETWEEN_SECONDS)

    def _clients_of(self, event: ServerEvent) -> set[Any]:
        if not isinstance(event, ResourceUpdated):
            return set(self._listed.get(type(event), ()))
        found = (told.get(event.uri, ()) for told in self._watched.values())
        return {one for watchers in found for one in watchers if hasattr(one, "notify")}


def require_short(uris: Collection[str]) -> None:
    """Raise `NotWatched` for more, or longer ones, than anybody may watch."""
    if len(uris) > MAX_WATCHED:
        raise NotWatched(f"at most {MAX_WATCHED:,} resources can be subscribed to")
    if any(len(uri) > MAX_URI_CHARACTERS for uri in uris):
        raise NotWatched(f"a URI that is subscribed to has at most {MAX_URI_CHARACTERS:,} characters")


async def _tell(connection: Any, event: ServerEvent) -> None:
    said = event_to_notification(event, {}).model_dump(by_alias=True, mode="json", exclude_none=True)
    try:
        async with asyncio.timeout(TELL_SECONDS):
            await connection.notify(said["method"], {key: value for key, value in said["params"].items() if value})
    except Exception as error:  # noqa: BLE001 - a client that does not read costs the others nothing
        _log.debug("a client was not told of %s: %s", said["method"], type(error).__name__)


EVENTS: dict[type[Any], ServerEvent] = {
    types.PromptListChangedNotification: PromptsListChanged(),
    types.ResourceListChangedNotification: ResourcesListChanged(),
}
"""What clients are told of a notification of a server."""
