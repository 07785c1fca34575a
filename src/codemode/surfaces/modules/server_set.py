"""All servers of a run tool: the tools that were last listed, as one catalog. Runs no program."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...data.similar_names import nearest_names
from ...host.forks import forkable_lock
from ...host.imports import importing
from ...host.threads import off_loop
from .listing import ListedServer
from .names import module_paths
from .servers import Source, sources_of

if TYPE_CHECKING:
    from .catalog import ModuleCatalog

_MAX_NAME_CHARACTERS = 200


class ServerSet:
    """Servers in the order in which they were given. Safe to use from several threads and event loops."""

    def __init__(self, servers: Iterable[Any]) -> None:
        self.sources = sources_of(servers)
        self.is_static = all(one.is_static for one in self.sources)
        self._by_path = {one.path: one for one in self.sources}
        self._by_id = {one.server_id: one for one in reversed(self.sources)}  # of equal ones the first
        self._lock = forkable_lock()
        self._made: tuple[Any, ModuleCatalog] | None = None

    @property
    def is_listed(self) -> bool:
        """True when each server has been listed once."""
        return self.is_static or all(one.listed is not None for one in self.sources)

    @property
    def may_ask(self) -> bool:
        """True when a call of some tool may wait for a person, as far as the servers have been listed."""
        return not self.is_listed or any(one.may_ask for one in _usable(self.listing()))

    @property
    def has_catalog(self) -> bool:
        """True when `catalog` has nothing to put together."""
        return self._made is not None and (self.is_static or self._made[0] == self.listing())

    def listing(self) -> tuple[tuple[ListedServer | None, str | None], ...]:
        """Return what all servers were last listed as, and why they are not now: equal as long as that is the same."""
        return tuple((one.listed, one.failure) for one in self.sources)

    def catalog(self) -> ModuleCatalog:
        """Return the tools as they were last listed: the same catalog as long as they are the same."""
        if self.is_static and self._made is not None:
            return self._made[1]
        with importing:
            from .catalog import ModuleCatalog
        known = self.listing()
        with self._lock:
            made = self._made
            if made is None or made[0] != known:
                listed = _usable(known)
                unavailable = {one.path: one.failure for one in self.sources if one.failure is not None}
                made = self._made = (known, ModuleCatalog(listed, unavailable, None if made is None else made[1]))
            return made[1]

    def shown(self) -> tuple[ListedServer, ...]:
        """Return all servers as the model is told of them: those that were never listed without tools."""
        return tuple(one.listed or _without_tools(one) for one in self.sources)

    def find(self, server_id: str) -> Source | None:
        """Return the server of this path, or that the host calls so."""
        return self._by_path.get(server_id) or self._by_id.get(server_id)

    def at(self, path: str) -> Source | None:
        """Return the server of this path."""
        return self._by_path.get(path)

    def nearest(self, server_id: str) -> list[str]:
        """Return at most three paths that may have been meant."""
        return nearest_names(module_paths([server_id[:_MAX_NAME_CHARACTERS]])[0], self._by_path)

    async def refresh(self) -> None:
        """List the tools of all servers anew whose tools change, all at once."""
        await self.list((one for one in self.sources if not one.is_static), anew=True)

    async def list(self, sources: Iterable[Source], *, anew: bool = False) -> None:
        """List the tools of these servers, all at once; of those whose tools are known only ``anew``."""
        wanted = [one.list(anew=anew) for one in dict.fromkeys(sources)]
        if wanted:
            await asyncio.gather(*wanted)

    async def put_together(self) -> None:
        """Have `catalog` give what there is at once: to put thousands of tools together takes some time."""
        if not self.has_catalog:
            await off_loop(self.catalog)


def _usable(listing: Iterable[tuple[ListedServer | None, str | None]]) -> list[ListedServer]:
    return [listed for listed, failure in listing if listed is not None and failure is None]


def _without_tools(source: Source) -> ListedServer:
    return ListedServer(source.path, source.server_id, source.server_id, None, None, (), ())
