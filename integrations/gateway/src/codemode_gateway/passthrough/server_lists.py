"""What one server lists beside its tools: prompts, resources, templates of resources; read when needed, and kept."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import mcp_types as types
from pydantic import ValidationError

from codemode.data.json_shape import weigh
from codemode.data.narrowing import is_mapping
from codemode.host.threads import LARGE_CHARACTERS, run_check
from codemode.trace.visible_text import one_line

from ..upstreams.connection import why_invalid

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
        characters = weigh(item, MAX_ITEM_CHARACTERS)
        if characters < MAX_ITEM_CHARACTERS:
            listed.append(Listed(kind.key(item), characters, item))
    return listed
