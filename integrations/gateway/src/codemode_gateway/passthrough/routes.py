"""Which server a URI belongs to, and what clients are told instead of a URI that another server has too. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise
from urllib.parse import urlsplit

from .names import marked_uri, unmarked_uri

_MAX_OWNED = 200_000
_MAX_LINKED = 10_000


class Routes:
    """Who has which URI, by the names of servers. The first that lists one keeps it, however long others run.

    So no server takes away what clients know another's resource by, neither by listing it nor while that one is down.
    """

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._linked: dict[str, str] = {}

    def public(self, uri: str, server: str, servers: Collection[str]) -> str:
        """Return what clients are told of a URI, or a template, that a server lists."""
        if len(self._owners) > _MAX_OWNED:
            self._owners.clear()
        if self._owners.get(uri) not in servers:
            self._owners[uri] = server
        return self._told(uri, server, self._owners[uri], servers)

    def linked(self, uri: str, server: str, servers: Collection[str]) -> str:
        """Return what clients are told of a URI that a server has named elsewhere than in a list."""
        owner = self._owners.get(uri)
        if owner is None or owner not in servers:
            while len(self._linked) >= _MAX_LINKED:
                del self._linked[next(iter(self._linked))]
            owner = self._linked.setdefault(uri, server)
        return self._told(uri, server, owner, servers)

    def owner(self, uri: str, servers: Collection[str]) -> tuple[str, str] | None:
        """Return the server of a client's URI, and the URI as that one knows it; None: nobody has listed it."""
        own, named = unmarked_uri(uri, servers)
        server = named or self._owners.get(uri) or self._linked.get(uri)
        return (server, own) if server is not None and server in servers else None

    def _told(self, uri: str, server: str, owner: str, servers: Collection[str]) -> str:
        is_own = owner == server and unmarked_uri(uri, servers)[1] is None
        return uri if is_own else marked_uri(uri, server)


def matching(uri: str, templates: Iterable[tuple[str, str]]) -> str | None:
    """Return the server, of pairs of server and template, whose template fits; of several the one that says most."""
    found: tuple[int, str] | None = None
    for server, template in templates:
        literals = _literals(template)
        said = sum(map(len, literals))
        if (found is None or said > found[0]) and _fits(uri, literals):
            found = said, server
    return found[1] if found else None


def alike(uri: str, listed: Iterable[tuple[str, str]]) -> list[str]:
    """Return the servers, of pairs of server and URI, that list URIs of the same scheme and authority."""
    mine = _origin(uri)
    return list(dict.fromkeys(server for server, one in listed if _origin(one) == mine))


def _literals(template: str) -> list[str]:
    """Return the texts around the expressions of a template, in their order."""
    first, *rest = template.split("{")
    return [first, *(part.partition("}")[2] for part in rest)]


def _fits(uri: str, literals: list[str]) -> bool:
    first, last = literals[0], literals[-1]
    if len(literals) == 1:
        return uri == first
    if not uri.startswith(first) or not uri.endswith(last) or len(uri) < len(first) + len(last):
        return False
    at, end = len(first), len(uri) - len(last)
    for literal, _ in pairwise(literals[1:]):
        found = uri.find(literal, at, end)
        if found < 0:
            return False
        at = found + len(literal)
    return True


def _origin(uri: str) -> tuple[str, str]:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "", uri
    return parts.scheme, parts.netloc
