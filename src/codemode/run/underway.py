"""Runs that the code in this context is part of. Knows nothing of what they run."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

from ..errors import CodeModeProtocolError


@dataclass(slots=True)
class Underway:
    """A run, until it has ended. ``key`` names what it alone may have; it may come later."""

    key: str
    outer: Underway | None
    has_ended: bool = False


_innermost: ContextVar[Underway | None] = ContextVar("codemode_underway", default=None)


@contextmanager
def underway(key: str = "") -> Generator[Underway]:
    """Let what the block starts be part of a run."""
    one = Underway(key, _innermost.get())
    token = _innermost.set(one)
    try:
        yield one
    finally:
        one.has_ended = True
        with suppress(ValueError):  # a coroutine that nobody awaits any more is closed in another context
            _innermost.reset(token)


def refuse_own(key: str, what: str = "this continuation is being resumed by") -> None:
    """Raise `CodeModeProtocolError` when what asks for this key is part of what has it: it would wait for itself."""
    one = _innermost.get()
    while one is not None:
        if one.key == key and not one.has_ended:
            raise CodeModeProtocolError(f"{what} the program whose call asks for it: it would wait for itself")
        one = one.outer
