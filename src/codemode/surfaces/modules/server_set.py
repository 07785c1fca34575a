"""The servers of a run tool: their catalog and their identities."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...cached_property import cached_property
from ...continuations.keys import get_or_create_process_keys
from ...data.similar_names import find_nearest_names
from ...errors import CodeModeProtocolError
from ...host.forks import create_fork_safe_lock
from ...host.imports import importing
from ...host.threads import run_in_single_use_thread
from ...options.parts import ContinuationOptions
from .module_tools import ListedServer, assign_module_paths
from .servers import ServerWithListing, create_servers_with_listings

if TYPE_CHECKING:
    from .catalog import ModuleCatalog


# An approval or a result of one server does not apply to another: a program resumes only with the servers that it
# has called.

_DIGEST_CHARACTERS = 32
_MAX_QUOTED_CHARACTERS = 100


class ServerIdentities:
    """Digests of the servers' ``home`` texts by path, under a key because some homes contain secrets.

    Continuations store digests under the signing key; any current key can verify them, as with signatures. Servers
    without ``home`` are not included: the host is responsible for them.
    """

    def __init__(self, sources: Sequence[ServerWithListing], options: ContinuationOptions) -> None:
        self._sources = sources
        self._options = options

    def get_digests(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the digests of these servers."""
        wanted = set(paths)
        return {path: digests[-1] for path, digests in self._digests.items() if path in wanted}

    def get_digests_of_servers_in_code(self, code: str) -> dict[str, str]:
        """Return the digests, under the first key, of servers whose paths occur in a program."""
        return {path: digests[0] for path, digests in self._digests.items() if path in code}

    def get_all_digests(self) -> dict[str, str]:
        """Return the digests of all servers."""
        return {path: digests[-1] for path, digests in self._digests.items()}

    def require_same_servers(self, stored_digests: Mapping[str, Any], paths: Iterable[str]) -> None:
        """Raise `CodeModeProtocolError` if one of these servers is missing or differs from its stored digest."""
        known = self._digests
        mismatch = next(
            (path for path in sorted(paths) if stored_digests.get(path) not in known.get(path, (None,))), None
        )
        if mismatch is not None:
            raise CodeModeProtocolError(
                f"the server {mismatch[:_MAX_QUOTED_CHARACTERS]!r} of this host is not the one that the program"
                " started with: resume where its configuration is the same",
                details={"not_resumable": True},
            )

    @cached_property
    def _digests(self) -> dict[str, tuple[str, ...]]:
        """The digests of each server, one per key in the order of keys."""
        homes = {secret.path: secret.home for secret in self._sources}
        if not any(homes.values()):
            return {}
        from ...continuations.signing import KeyRing

        keys = self._options.keys or get_or_create_process_keys()
        secrets = [KeyRing((key,), purpose="home").get_secret() for key in keys]
        return {
            path: tuple(_compute_home_digest(secret, home) for secret in secrets)
            for path, home in homes.items()
            if home
        }


def _compute_home_digest(secret: bytes, home: str) -> str:
    return hmac.new(secret, home.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:_DIGEST_CHARACTERS]


_MAX_NAME_CHARACTERS = 200


class ServerSet:
    """Servers in order. Thread-safe, and usable from several event loops."""

    def __init__(self, servers: Iterable[Any]) -> None:
        self.sources = create_servers_with_listings(servers)
        self.is_static = all(source.is_static for source in self.sources)
        self._by_path = {source.path: source for source in self.sources}
        self._by_id = {source.server_id: source for source in reversed(self.sources)}  # the first of equal ids
        self._lock = create_fork_safe_lock()
        self._cached_catalog: tuple[Any, ModuleCatalog] | None = None

    @property
    def is_listed(self) -> bool:
        """True if each server was listed once."""
        return self.is_static or all(source.listed is not None for source in self.sources)

    @property
    def may_wait_for_person(self) -> bool:
        """True if some call can wait for a person, as far as servers are listed."""
        return any(
            source.listed is None or (source.failure is None and source.listed.may_wait_for_person)
            for source in self.sources
        )

    def get_listing_snapshot(self) -> tuple[tuple[ListedServer | None, str | None], ...]:
        """Return the last listing and failure of each server; equal while nothing changes."""
        return tuple([(source.listed, source.failure) for source in self.sources])

    def get_or_build_catalog(self) -> ModuleCatalog:
        """Return the tools as last listed; the same object while nothing changes."""
        if self.is_static and self._cached_catalog is not None:
            return self._cached_catalog[1]
        with importing:
            from .catalog import ModuleCatalog
        listing = self.get_listing_snapshot()
        with self._lock:
            cached = self._cached_catalog
            if cached is None or cached[0] != listing:
                listed = _select_available_servers(listing)
                unavailable = {source.path: source.failure for source in self.sources if source.failure is not None}
                cached = self._cached_catalog = (
                    listing,
                    ModuleCatalog(listed, unavailable, None if cached is None else cached[1]),
                )
            return cached[1]

    def list_servers_for_description(self) -> tuple[ListedServer, ...]:
        """Return all servers for the description; unlisted servers have no tools."""
        return tuple(_to_server_for_description(source) for source in self.sources)

    def find(self, server_id: str) -> ServerWithListing | None:
        """Return the server with this path or host id, or None."""
        return self._by_path.get(server_id) or self._by_id.get(server_id)

    def get(self, path: str) -> ServerWithListing | None:
        """Return the server of this path."""
        return self._by_path.get(path)

    def find_similar_paths(self, server_id: str) -> list[str]:
        """Return at most three similar paths."""
        return find_nearest_names(assign_module_paths([server_id[:_MAX_NAME_CHARACTERS]])[0], self._by_path)

    async def refresh(self) -> None:
        """List all servers with changeable tools again, concurrently."""
        await self.load_listings((source for source in self.sources if not source.is_static), force=True)

    async def load_listings(self, sources: Iterable[ServerWithListing], *, force: bool = False) -> None:
        """List these servers concurrently; known ones only with ``force``."""
        listings = [source.load_listing(force=force) for source in dict.fromkeys(sources)]
        if listings:
            await asyncio.gather(*listings)

    async def build_catalog_off_loop(self) -> None:
        """Build the catalog in a thread if it is not cached: thousands of tools take time."""
        cached = self._cached_catalog
        if cached is None or not (self.is_static or cached[0] == self.get_listing_snapshot()):
            await run_in_single_use_thread(self.get_or_build_catalog)


def _select_available_servers(listing: Iterable[tuple[ListedServer | None, str | None]]) -> list[ListedServer]:
    return [listed for listed, failure in listing if listed is not None and failure is None]


def _to_server_for_description(source: ServerWithListing) -> ListedServer:
    if source.failure is None and source.listed is not None:
        return source.listed
    return ListedServer(source.path, source.server_id, source.server_id, None, None, (), (), failure=source.failure)
