"""What servers and their tools are called in a program: identifiers, and none of what the language reads. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .sources import INHERITED, safe_name

_WORD = re.compile(r"_+([A-Za-z0-9])")
OF_SERVERS = frozenset({"$api", "resources", "prompts"})
"""What every server has beside its tools."""


def camel(name: str) -> str:
    """Return an identifier as JavaScript writes one: ``create_issue`` becomes ``createIssue``."""
    head = name[: len(name) - len(name.lstrip("_"))]
    body = name[len(head) :].rstrip("_")
    return head + _WORD.sub(lambda found: found[1].upper(), body) if body else name


def server_names(owners: Iterable[str]) -> dict[str, str]:
    """Return what each server is called in programs, by its owner's name."""
    taken: set[str] = set()
    return {owner: _free(camel(safe_name(owner)), taken, frozenset()) for owner in owners}


def tool_names(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the identifiers of each tool, the one that is shown first: `createIssue`, and `create_issue` works too."""
    ordered = sorted(set(names))
    taken: set[str] = set()
    # What is an identifier already is found under it, whatever the others become.
    own_first = sorted(ordered, key=lambda name: camel(safe_name(name)) != name)
    shown = {name: _free(camel(safe_name(name)), taken, OF_SERVERS) for name in own_first}
    found: dict[str, tuple[str, ...]] = {}
    for name in ordered:
        also = safe_name(name)
        if also in taken or also in OF_SERVERS or also in INHERITED:
            found[name] = (shown[name],)
        else:
            taken.add(also)
            found[name] = (shown[name], also)
    return found


def _free(name: str, taken: set[str], reserved: frozenset[str]) -> str:
    free, number = name, 2
    while free in taken or free in reserved or free in INHERITED:
        free, number = f"{name}{number}", number + 1
    taken.add(free)
    return free
