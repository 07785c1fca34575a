"""Who has sent a message, and whether they still wait for its answer. Checks nobody itself."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from .principals import LOCAL, Principal

PRINCIPAL_KEY = "codemode.principal"
"""Where in the ASGI scope of a request the door has put the id of whoever sent it."""
ID_KEY = "codemode.request-id"
"""Where the id of the request in its body is, None where it holds none."""
METHOD_KEY = "codemode.method"
"""Where the method of the request in its body is, None where it holds none."""
PLACE_KEY = "codemode.place"
"""Where the `Place` of a request is, in which it counts as one of its user's."""
SESSION_HEADER = "mcp-session-id"
_LEFT_KEY = "codemode.left"
_PLACE: ContextVar[Any] = ContextVar("codemode_mcp_place", default=None)
_LEFT: ContextVar[asyncio.Event | None] = ContextVar("codemode_mcp_left", default=None)


def principal_of(ctx: Any) -> Principal:
    """Return who has sent the message of a `ServerRequestContext`; `LOCAL` where no HTTP request has brought it.

    ``session`` is the session of the handshake revisions, which was checked to be theirs. A request of 2026-07-28 has
    none, whatever its headers say. Raises `LookupError` for a request that came past the door.
    """
    request = getattr(ctx, "request", None)
    if request is None:
        return LOCAL
    name: str | None = request.scope.get(PRINCIPAL_KEY)
    if name is None:
        raise LookupError("a request has come to the gateway past its sign-in")
    has_session = ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
    return Principal(name, request.headers.get(SESSION_HEADER) if has_session else None)


@contextmanager
def answering(scope: MutableMapping[str, Any]) -> Generator[None]:
    """While the block runs somebody waits for the answer to the request of this ASGI scope: see `left_of`."""
    left = scope[_LEFT_KEY] = asyncio.Event()
    try:
        yield
    finally:
        left.set()


async def kept_in_place(ctx: Any, call_next: Any) -> Any:
    """Let a request count as its user's until its handler is done: a middleware of the SDK's server.

    In a session the handler goes on when the client hangs up, and clients that come and go would have any number.
    """
    request = getattr(ctx, "request", None)
    token = _PLACE.set(None if request is None else request.scope.get(PLACE_KEY))
    try:
        with in_place():
            return await call_next(ctx)
    finally:
        _PLACE.reset(token)


@contextmanager
def in_place() -> Generator[None]:
    """While the block runs the request that is served in this task counts as its user's, though it be answered."""
    place = _PLACE.get()
    with nullcontext() if place is None else place.in_use():
        yield


@contextmanager
def asking_no_more() -> Generator[asyncio.Event]:
    """Give what is to be set once the client at the other end of a pipe can answer no question any more."""
    left = asyncio.Event()
    token = _LEFT.set(left)
    try:
        yield left
    finally:
        _LEFT.reset(token)


def left_of(ctx: Any) -> asyncio.Event | None:
    """Return what is set once nobody is there any more who could answer a question of the gateway.

    That is who waits for the answer to the HTTP request of a message, or the client of a pipe. A session outlives the
    former: a client whose process was killed says no good-bye.
    """
    request = getattr(ctx, "request", None)
    return _LEFT.get() if request is None else request.scope.get(_LEFT_KEY)
