"""Prompts, resources, completion, subscriptions and logs of the servers of one principal."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from weakref import WeakSet

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from codemode.data.json_shape import estimate_json_length
from codemode.data.narrowing import is_mapping
from codemode.host.threads import LARGE_CHARACTERS, run_check
from codemode.trace.visible_text import clip_text, one_line

from ..config.model import ServerConfig
from ..gateway.principals import CallOrigin
from ..upstreams.connection import why_invalid
from .client_requests import Declined, HeldRequests, Questions, connection_of
from .logs import Hide, Logs, as_it_is
from .subscriptions import EVENTS, Watching
from .uri_routing import Paged, Routes, alike, matching, may_be_prompt_of, prompt_name

MAX_ITEMS = 10_000
MAX_CHARACTERS = 8_000_000
MAX_ITEM_CHARACTERS = 200_000
MAX_PAGES = 1_000
WAIT_SECONDS = 10.0
"""How long a list of all servers waits for one of them; what comes later is told as a change."""
FAILED_SECONDS = 30.0
KEPT_SECONDS = 300.0
_MAX_LOGGED_CHARACTERS = 500

_log = logging.getLogger("codemode.mcp")


@dataclass(frozen=True)
class Kind:
    """One kind of list: its method, the capability behind it, how a page is asked for, and what tells its items."""

    method: str
    capability: str
    page: Callable[[Any, types.PaginatedRequestParams], Awaitable[Any]]
    items: Callable[[Any], Sequence[Any]]
    key: Callable[[Any], str]


PROMPTS = Kind(
    "prompts/list", "prompts", lambda s, p: s.list_prompts(params=p), lambda page: page.prompts, lambda one: one.name
)
RESOURCES = Kind(
    "resources/list",
    "resources",
    lambda s, p: s.list_resources(params=p),
    lambda page: page.resources,
    lambda one: one.uri,
)
TEMPLATES = Kind(
    "resources/templates/list",
    "resources",
    lambda s, p: s.list_resource_templates(params=p),
    lambda page: page.resource_templates,
    lambda one: one.uri_template,
)
KINDS = (PROMPTS, RESOURCES, TEMPLATES)


def capability_of(upstream: Any, name: str) -> Any:
    """Return what a server says it can under this name; None: it cannot. Unknown, as nobody has asked yet, is {}."""
    said = upstream.capabilities
    if said is None:
        return {}
    return said.get(name) if is_mapping(said) else getattr(said, name, None)


@dataclass(frozen=True)
class Listed:
    """One item as its server gave it. ``characters`` is about what it takes as JSON."""

    key: str
    characters: int
    item: Any


class Shelf:
    """The lists of one server. ``on_late`` is told of a list that came after those who asked had stopped to wait.

    ``hide`` removes secrets from what is logged.
    """

    def __init__(self, upstream: Any, on_late: Callable[[Kind], None], hide: Callable[[str], str] = str) -> None:
        self.upstream = upstream
        self._hide = hide
        self._on_late = on_late
        self._kept: dict[Kind, tuple[Listed, ...]] = {}
        self._until: dict[Kind, float] = {}
        self._under_way: dict[Kind, asyncio.Task[None]] = {}

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        return self.upstream.config.name

    def forget(self, kind: Kind) -> None:
        """Read this list anew at the next need."""
        self._until.pop(kind, None)

    def kept(self, kind: Kind) -> tuple[Listed, ...]:
        """Return what was last listed."""
        return self._kept.get(kind, ())

    async def listed(self, kind: Kind) -> tuple[Listed, ...]:
        """Return the list as it is now, or as it last was where the server cannot say in time."""
        if capability_of(self.upstream, kind.capability) is None:
            return ()
        task = self._under_way.get(kind)
        if task is not None or not self._is_fresh(kind):
            if task is None:
                task = self._under_way[kind] = asyncio.get_running_loop().create_task(self._read(kind))
            # It serves others too, and goes on when this caller is cancelled or waits no longer.
            done, _ = await asyncio.wait([task], timeout=WAIT_SECONDS)
            if not done:
                task.add_done_callback(lambda task: task.cancelled() or self._on_late(kind))
        return self.kept(kind)

    def close(self) -> None:
        """Stop all that is under way."""
        for task in self._under_way.values():
            task.cancel()

    def _is_fresh(self, kind: Kind) -> bool:
        if time.monotonic() < self._until.get(kind, 0.0):
            return True
        # Nobody starts a server only to hear that its list is the same.
        return kind in self._until and kind in self._kept and self.upstream.state == "stopped"

    async def _read(self, kind: Kind) -> None:
        self._until[kind] = time.monotonic() + KEPT_SECONDS  # before: what changes meanwhile is read again
        try:
            self._kept[kind] = await read_list(self.upstream, kind)
        except Exception as error:  # noqa: BLE001 - whatever a server does costs the others nothing
            why = why_invalid(error) if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"
            said = one_line(self._hide(why), _MAX_LOGGED_CHARACTERS)
            _log.warning("%s of the server %r failed: %s", kind.method, self.name, said)
            self._until[kind] = time.monotonic() + FAILED_SECONDS
        finally:
            del self._under_way[kind]


async def read_list(upstream: Any, kind: Kind) -> tuple[Listed, ...]:
    """Read all pages of a server's list, in bounds. The first of equal items counts; what is too large is left out."""
    seconds = (upstream.config.connect_timeout_ms + upstream.config.timeout_ms) / 1000
    async with asyncio.timeout(seconds):
        return await upstream.ask(partial(_read_pages, upstream, kind))


async def _read_pages(upstream: Any, kind: Kind, session: Any) -> tuple[Listed, ...]:
    if capability_of(upstream, kind.capability) is None:
        return ()
    found: dict[str, Listed] = {}
    room = MAX_CHARACTERS
    cursor: str | None = None
    cursors: set[str] = set()
    for _ in range(MAX_PAGES):
        page = await kind.page(session, types.PaginatedRequestParams(cursor=cursor))
        listed = await run_check(LARGE_CHARACTERS, partial(_items_of, kind, page))
        for one in listed[: MAX_ITEMS - len(found)]:
            room -= one.characters
            if room >= 0:
                found.setdefault(one.key, one)
        cursor = page.next_cursor
        if not cursor or cursor in cursors or room < 0 or len(found) >= MAX_ITEMS:
            break
        cursors.add(cursor)
    return tuple(found.values())


def _items_of(kind: Kind, page: Any) -> list[Listed]:
    listed: list[Listed] = []
    for item in kind.items(page)[:MAX_ITEMS]:
        characters = estimate_json_length(item, MAX_ITEM_CHARACTERS)
        if characters < MAX_ITEM_CHARACTERS:
            listed.append(Listed(kind.key(item), characters, item))
    return listed


# Also where what servers ask and say by themselves arrives: `asked` and `notified` of `UpstreamHooks`.

_MAX_ERROR_CHARACTERS = 4_000
_EVENTS_OF = {PROMPTS: PromptsListChanged, RESOURCES: ResourcesListChanged, TEMPLATES: ResourcesListChanged}
_CHANGES: dict[type[Any], tuple[Kind, ...]] = {
    types.PromptListChangedNotification: (PROMPTS,),
    types.ResourceListChangedNotification: (RESOURCES, TEMPLATES),
}


class Passed:
    """Prompts and resources of several servers as those of one, and the questions of these servers.

    ``upstreams`` gives the servers as they are now, in the order of the configuration. ``hide`` removes secrets from a
    text, ``hide_in`` from JSON. ``asked`` and ``notified`` are hooks of these servers.
    """

    def __init__(
        self,
        upstreams: Callable[[], Sequence[Any]],
        *,
        hide: Callable[[str], str] = str,
        hide_in: Hide = as_it_is,
    ) -> None:
        self._upstreams = upstreams
        self._hide = hide
        self._shelves: dict[str, Shelf] = {}
        self._routes = Routes()
        self._in_flight: dict[str, list[_InFlight]] = {}
        self._connections: WeakSet[Any] = WeakSet()
        self.questions = Questions(hide)
        self.watching = Watching(hide)
        self.logs = Logs(upstreams, hide_in)
        self.held = HeldRequests()

    async def aclose(self) -> None:
        """End all that goes on for clients."""
        await self.held.aclose()
        for shelf in self._shelves.values():
            shelf.close()
        await self.watching.aclose()
        await self.logs.aclose()

    def joined(self, session: Any) -> None:
        """Know a client from now on, by the SDK's session of one of its requests: it may be asked for its roots."""
        connection = connection_of(session)
        if connection is None or connection in self._connections:
            return
        if connection.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._connections.add(connection)
            connection.exit_stack.callback(self._connections.discard, connection)

    def can(self, capability: str) -> bool:
        """Tell whether some server has a capability, as far as is known: one that nobody has asked yet may have it."""
        return any(capability_of(one, capability) is not None for one in self._upstreams())

    @property
    def can_subscribe(self) -> bool:
        """True when some server may tell of changes of its resources."""
        said = [capability_of(one, "resources") for one in self._upstreams()]
        return any(one == {} or (one is not None and bool(getattr(one, "subscribe", False))) for one in said)

    # --- hooks ---

    async def asked(self, config: ServerConfig, method: str, params: Mapping[str, Any], context: Any) -> Any:
        """Answer a request of a server: a result of the SDK, or `ErrorData` that says why not."""
        given = getattr(context, "context", None)
        # Never the request that is served where this runs: a server that serves several was started by one of them.
        origin = given if isinstance(given, CallOrigin) else self._only_origin(config.name)
        try:
            with self._without_limit(config.name):
                if origin is None and method == "roots/list":
                    return await self.questions.roots(list(self._connections))
                return await self.questions.ask(config.name, method, params, origin)
        except Declined as why:
            return types.ErrorData(code=types.INVALID_REQUEST, message=f"{method} is declined: {why}")

    async def notified(self, config: ServerConfig, notification: Any) -> None:
        """Pass on what a server says by itself, to those who asked for it."""
        said = cast("type[Any]", type(notification))
        if said in EVENTS:
            shelf = self._shelves.get(config.name)
            if shelf is not None:
                for kind in _CHANGES[said]:
                    shelf.forget(kind)
            self.watching.list_changed(EVENTS[said])
        elif isinstance(notification, types.ResourceUpdatedNotification):
            self.watching.updated(config.name, notification.params.uri)
        elif isinstance(notification, types.LoggingMessageNotification):
            self.logs.heard(config.name, notification.params)
        elif isinstance(notification, types.ElicitCompleteNotification):
            told = self.questions.completed(config.name, notification.params.elicitation_id)
            if told is not None:
                await told[1].send_elicit_complete(told[0])

    # --- lists ---

    async def page(self, kind: Kind, cursor: str | None, session: Any) -> tuple[list[Any], str | None]:
        """Return a page of what all servers list, under names of their own. Raises `CursorError`."""
        self.watching.has_listed(_EVENTS_OF[kind], connection_of(session))
        shelves = self._able(kind.capability)
        lists = await asyncio.gather(*(shelf.listed(kind) for shelf in shelves))
        found: dict[str, tuple[str, int, Any]] = {}
        for shelf, listed in zip(shelves, lists, strict=True):
            for one in listed:
                key = self._public(kind, shelf.name, one)
                found.setdefault(key, (key, one.characters + len(key), self._renamed(kind, one, key)))
        return Paged(kind.method, list(found.values())).page(cursor)

    async def prompt(self, public: str) -> tuple[Any, str] | None:
        """Return the server and its own name of a prompt; None: there is none of that name."""
        shelves = [one for one in self._able("prompts") if may_be_prompt_of(public, one.name)]
        for is_known in (True, False):
            for shelf in shelves:
                for one in shelf.kept(PROMPTS) if is_known else await shelf.listed(PROMPTS):
                    if self._public(PROMPTS, shelf.name, one) == public:
                        return shelf.upstream, one.key
        return None

    async def resource(self, public: str) -> tuple[Any, str] | None:
        """Return the server and its own URI of a resource, or of a template; None: it is nobody's."""
        owned = self._owned(public)
        if owned is None:
            for kind in (RESOURCES, TEMPLATES):
                await self.page(kind, None, None)
                owned = owned or self._owned(public)
        if owned is not None:
            return owned
        shelves = self._able("resources")
        templates = [(one.name, listed.key) for one in shelves for listed in one.kept(TEMPLATES)]
        server = matching(public, templates)
        if server is None:
            near = alike(public, ((one.name, listed.key) for one in shelves for listed in one.kept(RESOURCES)))
            server = near[0] if len(near) == 1 else shelves[0].name if len(shelves) == 1 else None
        found = next((one for one in shelves if one.name == server), None)
        return None if found is None else (found.upstream, public)

    def linked(self, server: str, uri: str) -> str:
        """Return what clients are told of a URI that a server names in what it gives."""
        return self._routes.linked(uri, server, self._names())

    # --- requests ---

    @asynccontextmanager
    async def in_flight(self, upstream: Any, origin: CallOrigin) -> AsyncGenerator[None]:
        """Let a server ask this client while its request is served, which may take as long as a call of a tool."""
        name = upstream.config.name
        async with asyncio.timeout(upstream.config.timeout_ms / 1000) as limit:
            entry = _InFlight(origin, limit)
            self._in_flight.setdefault(name, []).append(entry)
            try:
                yield
            finally:
                self._in_flight[name].remove(entry)

    def said(self, error: MCPError, server: str) -> MCPError:
        """Return what a client is told of a server's error: it names the server and holds no secrets."""
        text = clip_text(self._hide(error.message), _MAX_ERROR_CHARACTERS)
        return MCPError(error.code, f"{server}: {text}")

    # --- parts ---

    def _able(self, capability: str) -> list[Shelf]:
        shelves: list[Shelf] = []
        for upstream in self._upstreams():
            shelf = self._shelves.get(upstream.config.name)
            if shelf is None or shelf.upstream is not upstream:
                if shelf is not None:
                    shelf.close()
                shelf = self._shelves[upstream.config.name] = Shelf(upstream, self._late, self._hide)
            if capability_of(upstream, capability) is not None:
                shelves.append(shelf)
        return shelves

    def _late(self, kind: Kind) -> None:
        self.watching.list_changed(_EVENTS_OF[kind]())

    def _names(self) -> list[str]:
        return [one.config.name for one in self._upstreams()]

    def _public(self, kind: Kind, server: str, one: Listed) -> str:
        if kind is PROMPTS:
            return prompt_name(server, one.key, self._names())
        return self._routes.public(one.key, server, self._names())

    def _renamed(self, kind: Kind, one: Listed, public: str) -> Any:
        field = {PROMPTS: "name", RESOURCES: "uri", TEMPLATES: "uri_template"}[kind]
        return one.item if one.key == public else one.item.model_copy(update={field: public})

    def _owned(self, public: str) -> tuple[Any, str] | None:
        owner = self._routes.owner(public, self._names())
        if owner is None:
            return None
        return next((one, owner[1]) for one in self._upstreams() if one.config.name == owner[0])

    def _only_origin(self, server: str) -> CallOrigin | None:
        """Return the request in which a server asks that was not asked in a call; None: there are several, or none."""
        origins = [one.origin for one in self._in_flight.get(server, ())]
        clients = {id(connection_of(one.session) or one.session) for one in origins}
        return origins[-1] if len(clients) == 1 else None

    @contextmanager
    def _without_limit(self, server: str) -> Generator[None]:
        """Let the time of requests stand still while a person is asked."""
        entries = list(self._in_flight.get(server, ()))
        for one in entries:
            one.pause()
        try:
            yield
        finally:
            for one in entries:
                one.go_on()


class _InFlight:
    """One request that a server has from us, and the time that it has left."""

    def __init__(self, origin: CallOrigin, limit: asyncio.Timeout) -> None:
        self.origin = origin
        self._limit = limit
        self._pauses = 0
        self._left = 0.0

    def pause(self) -> None:
        self._pauses += 1
        if self._pauses == 1 and not self._limit.expired():
            self._left = (self._limit.when() or 0.0) - asyncio.get_running_loop().time()
            self._limit.reschedule(None)

    def go_on(self) -> None:
        self._pauses -= 1
        if self._pauses == 0 and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._left)
