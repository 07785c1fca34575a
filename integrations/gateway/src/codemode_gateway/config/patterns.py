"""Patterns of tools' names: ``*`` stands for any text, all else for itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from codemode.data.similar_names import nearest_names
from codemode.host import steps

from .mistakes import one_of, short

if TYPE_CHECKING:
    from .values import ServerConfig

_MAX_NOTES = 8
_MAX_COMPARED_CHARACTERS = 100


def matches(pattern: str, name: str) -> bool:
    """Return whether ``name`` is what ``pattern`` says. Takes time in proportion to both, whatever they hold."""
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    *middle, last = rest
    if not name.startswith(first) or len(name) < len(first) + len(last) or not name.endswith(last):
        return False
    place, end = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


def unmatched(patterns: Iterable[str], names: Collection[str]) -> list[str]:
    """Return the patterns that match none of the names. Metered work."""
    found: list[str] = []
    for pattern in dict.fromkeys(patterns):
        steps.take(1 + (len(names) if "*" in pattern else 0))
        if pattern not in names and not ("*" in pattern and any(matches(pattern, name) for name in names)):
            found.append(pattern)
    return found


def patterns_of(config: ServerConfig) -> dict[str, tuple[str, ...]]:
    """Return the patterns of a server by the keys of the configuration that hold them."""
    return {
        "approval": tuple(config.tool_approvals),
        "autoApprove": config.auto_approve,
        "tools.allow": config.allow,
        "tools.deny": config.deny,
    }


def unmatched_notes(patterns: dict[str, tuple[str, ...]], names: Collection[str], of: str = "") -> list[str]:
    """Return what to say of patterns that match no tool, with the nearest names: metered work; ``names`` are a set."""
    notes: list[str] = []
    left = 0
    for key, given in patterns.items():
        for pattern in unmatched(given, names):
            if len(notes) == _MAX_NOTES:
                left += 1
                continue
            meant = pattern.replace("*", "")[:_MAX_COMPARED_CHARACTERS]
            near = [one for one in names if one.lower() == meant.lower()] or nearest_names(meant, names)
            said = f"; did you mean {one_of(near)}?" if near else ""
            notes.append(f"{key}: {short(pattern)} matches no tool{of}{said}")
    return [*notes, f"{left} more patterns match no tool{of}"] if left else notes
