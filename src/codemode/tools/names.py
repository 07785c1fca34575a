"""Names of tools: which ones a program can call."""

from __future__ import annotations

from typing import Any

MAX_NAME_CHARACTERS = 128


class ImpossibleNameError(ValueError):
    """No program could call a tool of that name."""


def check_is_name(name: Any) -> str:
    """Give ``name`` back. Raises `ImpossibleNameError` for what names nothing, in any face."""
    plain = str.__str__(name) if isinstance(name, str) else ""  # of a subclass every method may be a stranger's
    if not plain:
        raise ImpossibleNameError(f"a tool's name must be a non-empty string, got {name!r}")
    return plain


def check_name(name: Any) -> str:
    """Give ``name`` back. Raises `ImpossibleNameError` when a program could not call a tool of that name."""
    name = check_is_name(name)
    if len(name) > MAX_NAME_CHARACTERS:
        raise ImpossibleNameError(f"tool name {name[:32]!r}... is longer than {MAX_NAME_CHARACTERS} characters")
    if name == "then":
        raise ImpossibleNameError("a tool called 'then' cannot be reached: it would make `tools` awaitable")
    if name.startswith("$"):
        raise ImpossibleNameError(f"tool name {name!r} starts with '$', which is kept for the catalog")
    if not name.isprintable():
        raise ImpossibleNameError(f"tool name {name!r} contains a control character")
    return name


def can_be_called(name: Any) -> bool:
    """Tell whether a program could call a tool of that name."""
    try:
        check_name(name)
    except ImpossibleNameError:
        return False
    return True
