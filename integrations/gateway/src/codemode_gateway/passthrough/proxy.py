"""Merge prompts, resources, completion, subscriptions and logs of several servers."""

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
from codemode.host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from codemode.trace.visible_text import clip_text, clip_to_visible_line

from ..config.model import ServerConfig
from ..gateway.principals import CallOrigin
from ..upstreams.connection import describe_validation_error
from .client_requests import ClientRequestForwarder, PausedRequests, RequestDeclinedError, get_client_connection
from .logs import Hide, LogForwarder, hide_nothing
from .subscriptions import EVENT_OF_NOTIFICATION, ClientSubscriptions
from .uri_routing import (
    PaginatedList,
    UriRoutes,
    find_template_server,
    list_servers_with_same_origin,
    may_be_prompt_of,
    to_public_prompt_name,
)

MAX_ITEMS = 10_000
MAX_CHARACTERS = 8_000_000
MAX_ITEM_CHARACTERS = 200_000
MAX_PAGES = 1_000
LIST_TIMEOUT_SECONDS = 10.0
"""How long a merged list waits for one server; a later list is announced as a change."""
FAILURE_CACHE_SECONDS = 30.0
CACHE_SECONDS = 300.0
_MAX_LOGGED_CHARACTERS = 500

_log = logging.getLogger("codemode.mcp")


@dataclass(frozen=True)
class ListKind:
    """One kind of list: its method, capability, page request, items and item key."""

    method: str
    capability: str
    fetch_page: Callable[[Any, types.PaginatedRequestParams], Awaitable[Any]]
    get_items: Callable[[Any], Sequence[Any]]
    get_key: Callable[[Any], str]


PROMPTS = ListKind(
    "prompts/list", "prompts", lambda s, p: s.list_prompts(params=p), lambda page: page.prompts, lambda one: one.name
)
RESOURCES = ListKind(
    "resources/list",
    "resources",
    lambda s, p: s.list_resources(params=p),
    lambda page: page.resources,
    lambda one: one.uri,
)
TEMPLATES = ListKind(
    "resources/templates/list",
    "resources",
    lambda s, p: s.list_resource_templates(params=p),
    lambda page: page.resource_templates,
    lambda one: one.uri_template,
)
KINDS = (PROMPTS, RESOURCES, TEMPLATES)


def get_capability(upstream: Any, name: str) -> Any:
    """Return a server's capability, None if missing, or {} if the server was not asked yet."""
    capabilities = upstream.capabilities
    if capabilities is None:
        return {}
    return capabilities.get(name) if is_mapping(capabilities) else getattr(capabilities, name, None)


@dataclass(frozen=True)
class ListedItem:
    """One item as its server listed it. ``characters`` is its approximate JSON size."""

    key: str
    characters: int
    item: Any


class ServerItemLists:
    """The cached lists of one server. ``on_late`` is called for a list that arrived after the timeout.

    ``hide`` removes secrets from logged text.
    """

    def __init__(self, upstream: Any, on_late: Callable[[ListKind], None], hide: Callable[[str], str] = str) -> None:
        self.upstream = upstream
        self._hide = hide
        self._on_late = on_late
        self._cached: dict[ListKind, tuple[ListedItem, ...]] = {}
        self._fresh_until: dict[ListKind, float] = {}
        self._reading: dict[ListKind, asyncio.Task[None]] = {}

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        return self.upstream.config.name

    def expire(self, kind: ListKind) -> None:
        """Fetch this list again on the next use."""
        self._fresh_until.pop(kind, None)

    def get_cached_items(self, kind: ListKind) -> tuple[ListedItem, ...]:
        """Return what was last listed."""
        return self._cached.get(kind, ())

    async def get_or_fetch_items(self, kind: ListKind) -> tuple[ListedItem, ...]:
        """Return the current list, or the last one if the server does not answer in time."""
        if get_capability(self.upstream, kind.capability) is None:
            return ()
        task = self._reading.get(kind)
        if task is not None or not self._is_fresh(kind):
            if task is None:
                task = self._reading[kind] = asyncio.get_running_loop().create_task(self._fetch_into_cache(kind))
            # Other callers share it, so it continues if this caller is cancelled or times out.
            done, _ = await asyncio.wait([task], timeout=LIST_TIMEOUT_SECONDS)
            if not done:
                task.add_done_callback(lambda task: task.cancelled() or self._on_late(kind))
        return self.get_cached_items(kind)

    def close(self) -> None:
        """Cancel all reads in progress."""
        for task in self._reading.values():
            task.cancel()

    def _is_fresh(self, kind: ListKind) -> bool:
        if time.monotonic() < self._fresh_until.get(kind, 0.0):
            return True
        # Do not start a stopped server only to list it again.
        return kind in self._fresh_until and kind in self._cached and self.upstream.state == "stopped"

    async def _fetch_into_cache(self, kind: ListKind) -> None:
        # Set before reading, so that a change meanwhile causes another read.
        self._fresh_until[kind] = time.monotonic() + CACHE_SECONDS
        try:
            self._cached[kind] = await fetch_list(self.upstream, kind)
        except Exception as error:  # noqa: BLE001 - a failing server must not affect the others
            reason = (
                describe_validation_error(error)
                if isinstance(error, ValidationError)
                else f"{type(error).__name__}: {error}"
            )
            text = clip_to_visible_line(self._hide(reason), _MAX_LOGGED_CHARACTERS)
            _log.warning("%s of the server %r failed: %s", kind.method, self.name, text)
            self._fresh_until[kind] = time.monotonic() + FAILURE_CACHE_SECONDS
        finally:
            del self._reading[kind]


async def fetch_list(upstream: Any, kind: ListKind) -> tuple[ListedItem, ...]:
    """Read all pages of a list within limits. Duplicate, oversized and invalid items are left out."""
    seconds = (upstream.config.connect_timeout_ms + upstream.config.timeout_ms) / 1000
    async with asyncio.timeout(seconds):
        return await upstream.ask(partial(_fetch_pages, upstream, kind))


async def _fetch_pages(upstream: Any, kind: ListKind, session: Any) -> tuple[ListedItem, ...]:
    if get_capability(upstream, kind.capability) is None:
        return ()
    items: dict[str, ListedItem] = {}
    remaining_characters = MAX_CHARACTERS
    cursor: str | None = None
    cursors: set[str] = set()
    for _ in range(MAX_PAGES):
        try:
            page = await kind.fetch_page(session, types.PaginatedRequestParams(cursor=cursor))
        except MCPError as error:
            if kind is TEMPLATES and error.code == types.METHOD_NOT_FOUND:
                break  # a server with resources may have no templates
            raise
        page_items = await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, partial(_extract_items, kind, page))
        for item in page_items[: MAX_ITEMS - len(items)]:
            remaining_characters -= item.characters
            if remaining_characters >= 0:
                items.setdefault(item.key, item)
        cursor = page.next_cursor
        if not cursor or cursor in cursors or remaining_characters < 0 or len(items) >= MAX_ITEMS:
            break
        cursors.add(cursor)
    return tuple(items.values())


def _extract_items(kind: ListKind, page: Any) -> list[ListedItem]:
    items: list[ListedItem] = []
    for item in kind.get_items(page)[:MAX_ITEMS]:
        characters = estimate_json_length(item, MAX_ITEM_CHARACTERS)
        if characters < MAX_ITEM_CHARACTERS:
            items.append(ListedItem(kind.get_key(item), characters, item))
    return items


# It also receives requests and notifications of servers: `on_request` and `on_notification` of `UpstreamHooks`.

_MAX_ERROR_CHARACTERS = 4_000
_EVENT_OF_LIST = {PROMPTS: PromptsListChanged, RESOURCES: ResourcesListChanged, TEMPLATES: ResourcesListChanged}
_LISTS_OF_NOTIFICATION: dict[type[Any], tuple[ListKind, ...]] = {
    types.PromptListChangedNotification: (PROMPTS,),
    types.ResourceListChangedNotification: (RESOURCES, TEMPLATES),
}


class PassthroughProxy:
    """Prompts and resources of several servers as one server's, and these servers' questions to clients.

    ``upstreams`` returns the current servers in configuration order. ``hide`` removes secrets from text, ``hide_in``
    from JSON. ``on_request`` and ``on_notification`` are hooks of these servers.
    """

    def __init__(
        self, upstreams: Callable[[], Sequence[Any]], *, hide: Callable[[str], str] = str, hide_in: Hide = hide_nothing
    ) -> None:
        self._upstreams = upstreams
        self._hide = hide
        self._item_lists: dict[str, ServerItemLists] = {}
        self._routes = UriRoutes()
        self._in_flight: dict[str, list[_RequestInFlight]] = {}
        self._connections: WeakSet[Any] = WeakSet()
        self.questions = ClientRequestForwarder(hide)
        self.subscriptions = ClientSubscriptions(hide)
        self.logs = LogForwarder(upstreams, hide_in)
        self.paused_requests = PausedRequests()

    async def aclose(self) -> None:
        """End all work for clients."""
        await self.paused_requests.aclose()
        for item_list in self._item_lists.values():
            item_list.close()
        await self.subscriptions.aclose()
        await self.logs.aclose()

    def register_client_for_roots(self, session: Any) -> None:
        """Register a client that may be asked for its roots."""
        connection = get_client_connection(session)
        if connection is None or connection in self._connections:
            return
        if connection.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._connections.add(connection)
            connection.exit_stack.callback(self._connections.discard, connection)

    def may_have_capability(self, capability: str) -> bool:
        """Return whether a server has, or may have, a capability."""
        return any(get_capability(upstream, capability) is not None for upstream in self._upstreams())

    @property
    def can_subscribe(self) -> bool:
        """Return whether a server may support resource subscriptions."""
        capabilities = [get_capability(capability, "resources") for capability in self._upstreams()]
        return any(
            capability == {} or (capability is not None and bool(getattr(capability, "subscribe", False)))
            for capability in capabilities
        )

    # --- hooks ---

    async def on_request(self, config: ServerConfig, method: str, params: Mapping[str, Any], context: Any) -> Any:
        """Answer a server's request with an SDK result or ``ErrorData``."""
        origin_context = getattr(context, "context", None)
        # Do not use the current context's request: it only started the server, which may serve others now.
        origin = origin_context if isinstance(origin_context, CallOrigin) else self._find_only_origin(config.name)
        try:
            with self._pause_timeouts(config.name):
                if origin is None and method == "roots/list":
                    return await self.questions.ask_for_roots(list(self._connections))
                return await self.questions.ask_client(config.name, method, params, origin)
        except RequestDeclinedError as refusal:
            return types.ErrorData(code=types.INVALID_REQUEST, message=f"{method} is declined: {refusal}")

    async def on_notification(self, config: ServerConfig, notification: Any) -> None:
        """Forward a server's notification to subscribed clients."""
        notification_type = cast("type[Any]", type(notification))
        if notification_type in EVENT_OF_NOTIFICATION:
            item_list = self._item_lists.get(config.name)
            if item_list is not None:
                for kind in _LISTS_OF_NOTIFICATION[notification_type]:
                    item_list.expire(kind)
            self.subscriptions.notify_list_changed(EVENT_OF_NOTIFICATION[notification_type])
        elif isinstance(notification, types.ResourceUpdatedNotification):
            self.subscriptions.notify_resource_updated(config.name, notification.params.uri)
        elif isinstance(notification, types.LoggingMessageNotification):
            self.logs.on_log_message(config.name, notification.params)
        elif isinstance(notification, types.ElicitCompleteNotification):
            completed = self.questions.pop_opened_elicitation(config.name, notification.params.elicitation_id)
            if completed is not None:
                await completed[1].send_elicit_complete(completed[0])

    # --- lists ---

    async def get_page_and_subscribe(
        self, kind: ListKind, cursor: str | None, session: Any
    ) -> tuple[list[Any], str | None]:
        """Return a page of all servers' items under unique names. Raises `CursorError`."""
        self.subscriptions.subscribe_to_list(_EVENT_OF_LIST[kind], get_client_connection(session))
        item_lists = self._get_or_create_lists(kind.capability)
        lists = await asyncio.gather(*(item_list.get_or_fetch_items(kind) for item_list in item_lists))
        merged: dict[str, tuple[str, int, Any]] = {}
        for item_list, items in zip(item_lists, lists, strict=True):
            for item in items:
                key = self._register_and_get_public_name_or_uri(kind, item_list.name, item)
                merged.setdefault(
                    key, (key, item.characters + len(key), self._with_public_name_or_uri(kind, item, key))
                )
        return PaginatedList(kind.method, list(merged.values())).get_page(cursor)

    async def find_or_fetch_prompt_owner_and_name(self, public: str) -> tuple[Any, str] | None:
        """Return the server and its own name of a prompt, or None."""
        item_lists = [item for item in self._get_or_create_lists("prompts") if may_be_prompt_of(public, item.name)]
        for is_known in (True, False):
            for item_list in item_lists:
                for item in (
                    item_list.get_cached_items(PROMPTS) if is_known else await item_list.get_or_fetch_items(PROMPTS)
                ):
                    if self._register_and_get_public_name_or_uri(PROMPTS, item_list.name, item) == public:
                        return item_list.upstream, item.key
        return None

    async def find_or_fetch_resource_owner_and_uri(self, public: str) -> tuple[Any, str] | None:
        """Return the server and its own URI of a resource or template, or None."""
        owner = self._find_owner_and_server_uri(public)
        if owner is None:
            for kind in (RESOURCES, TEMPLATES):
                await self.get_page_and_subscribe(kind, None, None)
                owner = owner or self._find_owner_and_server_uri(public)
        if owner is not None:
            return owner
        item_lists = self._get_or_create_lists("resources")
        templates = [
            (item_list.name, item.key) for item_list in item_lists for item in item_list.get_cached_items(TEMPLATES)
        ]
        server = find_template_server(public, templates)
        if server is None:
            same_origin = list_servers_with_same_origin(
                public,
                (
                    (item_list.name, item.key)
                    for item_list in item_lists
                    for item in item_list.get_cached_items(RESOURCES)
                ),
            )
            server = same_origin[0] if len(same_origin) == 1 else item_lists[0].name if len(item_lists) == 1 else None
        matching_list = next((item_list for item_list in item_lists if item_list.name == server), None)
        return None if matching_list is None else (matching_list.upstream, public)

    def register_and_get_public_uri(self, server: str, uri: str) -> str:
        """Return the public form of a URI in a server's result."""
        return self._routes.register_linked_and_get_public_uri(uri, server, self._list_server_names())

    # --- requests ---

    @asynccontextmanager
    async def track_request_with_timeout(self, upstream: Any, origin: CallOrigin) -> AsyncGenerator[None]:
        """Route a server's requests to this client while it handles the client's request, within the call timeout."""
        name = upstream.config.name
        async with asyncio.timeout(upstream.config.timeout_ms / 1000) as limit:
            entry = _RequestInFlight(origin, limit)
            self._in_flight.setdefault(name, []).append(entry)
            try:
                yield
            finally:
                self._in_flight[name].remove(entry)

    def to_client_error(self, error: MCPError, server: str) -> MCPError:
        """Return a server's error for the client, with the server's name and without secrets."""
        text = clip_text(self._hide(error.message), _MAX_ERROR_CHARACTERS)
        return MCPError(error.code, f"{server}: {text}")

    # --- parts ---

    def _get_or_create_lists(self, capability: str) -> list[ServerItemLists]:
        item_lists: list[ServerItemLists] = []
        for upstream in self._upstreams():
            item_list = self._item_lists.get(upstream.config.name)
            if item_list is None or item_list.upstream is not upstream:
                if item_list is not None:
                    item_list.close()
                item_list = self._item_lists[upstream.config.name] = ServerItemLists(
                    upstream, self._on_late_list, self._hide
                )
            if get_capability(upstream, capability) is not None:
                item_lists.append(item_list)
        return item_lists

    def _on_late_list(self, kind: ListKind) -> None:
        self.subscriptions.notify_list_changed(_EVENT_OF_LIST[kind]())

    def _list_server_names(self) -> list[str]:
        return [upstream.config.name for upstream in self._upstreams()]

    def _register_and_get_public_name_or_uri(self, kind: ListKind, server: str, item: ListedItem) -> str:
        if kind is PROMPTS:
            return to_public_prompt_name(server, item.key, self._list_server_names())
        return self._routes.register_listed_and_get_public_uri(item.key, server, self._list_server_names())

    def _with_public_name_or_uri(self, kind: ListKind, item: ListedItem, public_key: str) -> Any:
        attribute = {PROMPTS: "name", RESOURCES: "uri", TEMPLATES: "uri_template"}[kind]
        return item.item if item.key == public_key else item.item.model_copy(update={attribute: public_key})

    def _find_owner_and_server_uri(self, public_uri: str) -> tuple[Any, str] | None:
        owner = self._routes.find_owner_and_server_uri(public_uri, self._list_server_names())
        if owner is None:
            return None
        return next((upstream, owner[1]) for upstream in self._upstreams() if upstream.config.name == owner[0])

    def _find_only_origin(self, server: str) -> CallOrigin | None:
        """Return the only client request a server is handling outside tool calls, or None."""
        origins = [request.origin for request in self._in_flight.get(server, ())]
        clients = {id(get_client_connection(request.session) or request.session) for request in origins}
        return origins[-1] if len(clients) == 1 else None

    @contextmanager
    def _pause_timeouts(self, server: str) -> Generator[None]:
        """Pause request timeouts while a person is asked."""
        requests = list(self._in_flight.get(server, ()))
        for request in requests:
            request.pause_timeout()
        try:
            yield
        finally:
            for request in requests:
                request.resume_timeout()


class _RequestInFlight:
    """A request to a server, with its remaining time."""

    def __init__(self, origin: CallOrigin, limit: asyncio.Timeout) -> None:
        self.origin = origin
        self._limit = limit
        self._pauses = 0
        self._left = 0.0

    def pause_timeout(self) -> None:
        self._pauses += 1
        if self._pauses == 1 and not self._limit.expired():
            self._left = (self._limit.when() or 0.0) - asyncio.get_running_loop().time()
            self._limit.reschedule(None)

    def resume_timeout(self) -> None:
        self._pauses -= 1
        if self._pauses == 0 and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._left)
