"""What clients are told instead of the names and URIs of servers, so that no two come to the same. Pure.

Of a prompt it is ``<server>_<name>``; of a resource its own URI, or, where another server has that, the URI with
``#server=<name>`` behind it. Both depend on the names of the configured servers alone, not on which of them run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from urllib.parse import quote

MAX_PROMPT_NAME_CHARACTERS = 64
"""The longest name that all clients take which make a command of it."""

_DIGEST_CHARACTERS = 12
_DIGEST = re.compile(rf"_[0-9a-f]{{{_DIGEST_CHARACTERS}}}\Z")
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_MARKS = ("#server=", "&server=")


def prompt_name(server: str, name: str, servers: Collection[str]) -> str:
    """Return what clients call a prompt of a server, one of these.

    What would be too long, or has other characters than letters, digits, ``_`` and ``-``, or might be meant by another
    server's prompt too, ends with a digest of both names.
    """
    plain = f"{server}_{name}"
    if (
        len(plain) <= MAX_PROMPT_NAME_CHARACTERS
        and not _FOREIGN.search(plain)
        and not _DIGEST.search(plain)
        and not any(server.startswith(f"{other}_") for other in servers if other != server)
    ):
        return plain
    digest = hashlib.sha256(f"{len(server)}:{server}{name}".encode("utf-8", "surrogatepass")).hexdigest()
    kept = _cleaned(plain)[: MAX_PROMPT_NAME_CHARACTERS - _DIGEST_CHARACTERS - 1]
    return f"{kept}_{digest[:_DIGEST_CHARACTERS]}"


def may_be_prompt_of(public: str, server: str) -> bool:
    """Tell whether clients may call a prompt of this server so: asking other servers would be for nothing."""
    start = f"{_cleaned(server)}_"
    return public.startswith(start[: MAX_PROMPT_NAME_CHARACTERS - _DIGEST_CHARACTERS - 1])


def marked_uri(uri: str, server: str) -> str:
    """Return a URI, or a template of URIs, as that of one server: its scheme and path stay as they are."""
    mark = _MARKS["#" in uri]
    return f"{uri}{mark}{quote(server, safe='')}"


def unmarked_uri(uri: str, servers: Collection[str]) -> tuple[str, str | None]:
    """Return the URI as its server knows it, and the server, one of these; None where no server is named in it."""
    for mark in _MARKS:
        at = uri.rfind(mark)
        if at >= 0:
            named = uri[at + len(mark) :]
            server = next((one for one in servers if quote(one, safe="") == named), None)
            if server is not None:
                return uri[:at], server
    return uri, None


def _cleaned(text: str) -> str:
    return _FOREIGN.sub("_", text)
