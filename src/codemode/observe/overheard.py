"""Who hears of the invocations that begin inside a block. For plugins, whose caller is not the program's own."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_HEARING: ContextVar[Callable[[Any], Any] | None] = ContextVar("codemode_hearing", default=None)


@contextmanager
def heard_by(listener: Callable[[Any], Any]) -> Generator[None]:
    """Let this listener hear every event of the invocations that begin here, before the hooks of their options do.

    It is called on the loop of each; what it raises changes nothing. Whoever is called in turn, such as a tool that
    runs programs of its own, begins here too: the first event, an `InvocationStarted`, says whose the others are.
    """
    token = _HEARING.set(listener)
    try:
        yield
    finally:
        _HEARING.reset(token)


def listeners_here() -> tuple[Callable[[Any], Any], ...]:
    """Return who hears of an invocation that begins now."""
    listener = _HEARING.get()
    return () if listener is None else (listener,)
