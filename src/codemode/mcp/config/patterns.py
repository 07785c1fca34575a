"""Patterns of tools' names: ``*`` stands for any text, all else for itself."""

from __future__ import annotations


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
