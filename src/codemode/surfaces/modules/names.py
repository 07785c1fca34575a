"""Names in programs: paths of servers' modules and exports of tools. Pure, and the same for the same names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...trace.unseen import all_seen

MODULE_OF_ERRORS = "@codemode/errors"
MODULE_OF_DISCOVERY = "@codemode/discovery"
SERVERS = "@codemode/servers/"
META = "__meta__"
MAX_CALLED_CHARACTERS = 512
"""Of the name by which a worker calls a tool: path and tool together."""

_NO_PATH = "server"
_OUTSIDE_OF_PATHS = re.compile("[^a-z0-9]+")
_RESERVED_TEXT = """
    break case catch class const continue debugger default delete do else export extends false finally for function if
    import in instanceof new null return super switch this throw true try typeof var void while with yield let static
    await enum implements interface package private protected public eval arguments
"""
RESERVED = frozenset(_RESERVED_TEXT.split())
"""What the specification reserves, and what no module may call a variable."""
# The language itself calls functions of these names: `await import()` then, `${namespace}` and + the others.
_NO_EXPORTS = RESERVED | {"then", "toString", "toLocaleString", "valueOf", "toJSON"}


def module_paths(server_ids: Iterable[str]) -> list[str]:
    """Return the path of each server, in their order: of two that come to the same, the first keeps it."""
    counts: dict[str, int] = {}
    paths: list[str] = []
    for server_id in server_ids:
        path = _OUTSIDE_OF_PATHS.sub("-", server_id.lower()).strip("-") or _NO_PATH
        counts[path] = counts.get(path, 0) + 1
        paths.append(path if counts[path] == 1 else f"{path}--{counts[path]}")  # no other path holds two hyphens
    return paths


def export_names(tool_names: Iterable[str]) -> dict[str, str]:
    """Return the export of each tool by its name, in alphabetical order of names."""
    taken = {META}
    exports: dict[str, str] = {}
    counts: dict[str, int] = {}
    for tool_name in sorted(set(tool_names)):
        clean = _identifier(tool_name)
        name = clean
        while name in taken:
            counts[clean] = counts.get(clean, 1) + 1
            name = f"{clean}__{counts[clean]}"
        taken.add(name)
        exports[tool_name] = name
    return exports


def module_of(path: str) -> str:
    """Return the specifier of a server's module."""
    return SERVERS + path


def path_of(specifier: str) -> str | None:
    """Return the path of the server whose module a specifier means; None for another module."""
    return specifier[len(SERVERS) :] if specifier.startswith(SERVERS) else None


def qualified_name(path: str, tool_name: str) -> str:
    """Return the name by which a run knows a tool. A path has no dot."""
    return f"{path}.{tool_name}"


def _identifier(tool_name: str) -> str:
    name = "".join(one if _may_go_on(one) else "_" for one in tool_name)
    if not _may_begin(name[:1]):
        name = f"_{name}"
    return f"{name}_" if name in _NO_EXPORTS else name


def _may_begin(character: str) -> bool:
    return character == "$" or character.isidentifier()


def _may_go_on(character: str) -> bool:
    # Letters by Unicode that nobody sees: two tools would read as one, and a model could not write either.
    return character == "$" or (f"_{character}".isidentifier() and all_seen(character))
