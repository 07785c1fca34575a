"""Give names, URIs and cursors that are unique across several servers."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Generic, TypeVar
from urllib.parse import quote, urlsplit

# Prompts are named ``<server>_<name>``. Resources keep their URI; if another server has the same URI, it ends with
# ``#server=<name>``. Names depend only on the configured servers, not on those that run.

MAX_PROMPT_NAME_CHARACTERS = 64
"""The longest prompt name that all clients accept as a command."""

_DIGEST_CHARACTERS = 12
_DIGEST = re.compile(rf"_[0-9a-f]{{{_DIGEST_CHARACTERS}}}\Z")
_FOREIGN_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_MARKS = ("#server=", "&server=")


def to_public_prompt_name(server: str, name: str, servers: Collection[str]) -> str:
    """Return a server's prompt name as clients see it.

    Long names, names with other characters than letters, digits, ``_`` and ``-``, and ambiguous names end with a
    digest.
    """
    name_with_server = f"{server}_{name}"
    if (
        len(name_with_server) <= MAX_PROMPT_NAME_CHARACTERS
        and not _FOREIGN_CHARACTER.search(name_with_server)
        and not _DIGEST.search(name_with_server)
        and not any(server.startswith(f"{other}_") for other in servers if other != server)
    ):
        return name_with_server
    digest = hashlib.sha256(f"{len(server)}:{server}{name}".encode("utf-8", "surrogatepass")).hexdigest()
    prefix = _replace_invalid_characters(name_with_server)[: MAX_PROMPT_NAME_CHARACTERS - _DIGEST_CHARACTERS - 1]
    return f"{prefix}_{digest[:_DIGEST_CHARACTERS]}"


def may_be_prompt_of(public: str, server: str) -> bool:
    """Return whether a public prompt name may belong to this server."""
    start = f"{_replace_invalid_characters(server)}_"
    return public.startswith(start[: MAX_PROMPT_NAME_CHARACTERS - _DIGEST_CHARACTERS - 1])


def add_server_mark(uri: str, server: str) -> str:
    """Return a URI or template marked with its server; scheme and path stay unchanged."""
    mark = _MARKS["#" in uri]
    return f"{uri}{mark}{quote(server, safe='')}"


def split_server_mark(uri: str, servers: Collection[str]) -> tuple[str, str | None]:
    """Return the server's own URI and the server named in it, or None."""
    for mark in _MARKS:
        at = uri.rfind(mark)
        if at >= 0:
            quoted_name = uri[at + len(mark) :]
            server = next((name for name in servers if quote(name, safe="") == quoted_name), None)
            if server is not None:
                return uri[:at], server
    return uri, None


def _replace_invalid_characters(text: str) -> str:
    return _FOREIGN_CHARACTER.sub("_", text)


# A cursor names the last item of its page and the position of that item, in case it is gone.

MAX_ITEMS = 500
MAX_CHARACTERS = 1_000_000
_MAX_CURSOR_CHARACTERS = 200
_TAG_BYTES = 9
_PURPOSE = b"codemode cursor 1:"

ItemT = TypeVar("ItemT")


class CursorError(ValueError):
    """An unknown cursor."""


class PaginatedList(Generic[ItemT]):
    """An ordered list of items with unique keys and sizes, in pages."""

    def __init__(self, kind: str, items: Sequence[tuple[str, int, ItemT]]) -> None:
        self._kind = kind
        self._items = items

    def get_page(self, cursor: str | None) -> tuple[list[ItemT], str | None]:
        """Return the items after a cursor, and the next cursor or None. Raises `CursorError`."""
        start = 0 if cursor is None else self._find_start(cursor)
        page: list[ItemT] = []
        room = MAX_CHARACTERS
        for _, characters, item in self._items[start : start + MAX_ITEMS]:
            room -= characters
            if room < 0 and page:
                break
            page.append(item)
        end = start + len(page)
        if end >= len(self._items):
            return page, None
        key = self._items[end - 1][0]
        return page, _encode_cursor(self._kind, end, _compute_key_digest(key))

    def _find_start(self, cursor: str) -> int:
        position, digest = _decode_cursor(self._kind, cursor)
        if 0 < position <= len(self._items) and _compute_key_digest(self._items[position - 1][0]) == digest:
            return position
        found = (at for at, (key, _, _) in enumerate(self._items, 1) if _compute_key_digest(key) == digest)
        return next(found, min(position, len(self._items)))


def _compute_key_digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _encode_cursor(kind: str, position: int, digest: str) -> str:
    body = f"{kind}:{position}:{digest}".encode()
    return base64.urlsafe_b64encode(body + _compute_cursor_tag(body)).rstrip(b"=").decode()


def _decode_cursor(kind: str, cursor: str) -> tuple[int, str]:
    try:
        if len(cursor) > _MAX_CURSOR_CHARACTERS:
            raise CursorError
        raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        body, tag = raw[:-_TAG_BYTES], raw[-_TAG_BYTES:]
        of_kind, position, digest = body.decode("ascii").split(":")
    except (ValueError, binascii.Error):
        raise CursorError(f"{kind} did not return this cursor: start again without a cursor") from None
    if of_kind != kind or not hmac.compare_digest(tag, _compute_cursor_tag(body)):
        raise CursorError(f"{kind} did not return this cursor: start again without a cursor")
    return int(position), digest


def _compute_cursor_tag(body: bytes) -> bytes:
    # Detects mistakes, not forgery: a forged cursor only selects a position in the same list.
    return hashlib.sha256(_PURPOSE + body).digest()[:_TAG_BYTES]


_MAX_OWNED = 200_000
_MAX_LINKED = 10_000


class UriRoutes:
    """Maps URIs to servers. The first server that lists a URI keeps it, even while it is down.

    So no server can take over a resource that clients know.
    """

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._linked: dict[str, str] = {}

    def register_listed_and_get_public_uri(self, uri: str, server: str, servers: Collection[str]) -> str:
        """Return the public form of a URI or template that a server lists."""
        if len(self._owners) > _MAX_OWNED:
            self._owners.clear()
        if self._owners.get(uri) not in servers:
            self._owners[uri] = server
        return self._to_public_uri(uri, server, self._owners[uri], servers)

    def register_linked_and_get_public_uri(self, uri: str, server: str, servers: Collection[str]) -> str:
        """Return the public form of a URI that a server names outside its lists."""
        owner = self._owners.get(uri)
        if owner is None or owner not in servers:
            while len(self._linked) >= _MAX_LINKED:
                del self._linked[next(iter(self._linked))]
            owner = self._linked.setdefault(uri, server)
        return self._to_public_uri(uri, server, owner, servers)

    def find_owner_and_server_uri(self, uri: str, servers: Collection[str]) -> tuple[str, str] | None:
        """Return the server of a public URI and its own URI, or None."""
        server_uri, marked_server = split_server_mark(uri, servers)
        server = marked_server or self._owners.get(uri) or self._linked.get(uri)
        return (server, server_uri) if server is not None and server in servers else None

    def _to_public_uri(self, uri: str, server: str, owner: str, servers: Collection[str]) -> str:
        is_own = owner == server and split_server_mark(uri, servers)[1] is None
        return uri if is_own else add_server_mark(uri, server)


def find_template_server(uri: str, templates: Iterable[tuple[str, str]]) -> str | None:
    """Return the server whose template matches a URI most specifically, or None."""
    best: tuple[int, str] | None = None
    for server, template in templates:
        literals = _split_template_literals(template)
        literal_characters = sum(map(len, literals))
        if (best is None or literal_characters > best[0]) and _matches_template(uri, literals):
            best = literal_characters, server
    return best[1] if best else None


def list_servers_with_same_origin(uri: str, listed: Iterable[tuple[str, str]]) -> list[str]:
    """Return the servers that list URIs with the same scheme and authority."""
    origin = _get_origin(uri)
    return list(dict.fromkeys(server for server, other_uri in listed if _get_origin(other_uri) == origin))


def _split_template_literals(template: str) -> list[str]:
    """Return the texts around the expressions of a template, in their order."""
    first, *rest = template.split("{")
    return [first, *(part.partition("}")[2] for part in rest)]


def _matches_template(uri: str, literals: list[str]) -> bool:
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


def _get_origin(uri: str) -> tuple[str, str]:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "", uri
    return parts.scheme, parts.netloc
