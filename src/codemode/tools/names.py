"""Names of tools: which ones a program can call."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

MAX_NAME_CHARACTERS = 128
_are_any = ContextVar("codemode_any_names", default=False)


class ImpossibleNameError(ValueError):
    """No program could call a tool of that name."""


@contextmanager
def any_names() -> Generator[None, None, None]:
    """Let tools made in here have any names: their programs call them by others."""
    token = _are_any.set(True)
    try:
        yield
    finally:
        _are_any.reset(token)


def check_name(name: Any) -> str:
    """Give ``name`` back. Raises `ImpossibleNameError` when a program could not call a tool of that name."""
    if _are_any.get() and isinstance(name, str):
        return name
    if not isinstance(name, str) or not name:
        raise ImpossibleNameError(f"a tool's name must be a non-empty string, got {name!r}")
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
