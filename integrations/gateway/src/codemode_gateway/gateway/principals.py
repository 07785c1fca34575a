"""Define principals, connection sharing and the caller of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from ..config.model import ServerConfig

if TYPE_CHECKING:
    from codemode.workers.pool import WorkerPool


_DEFAULT_SHARE_WORKERS = 8


@dataclass(frozen=True)
class Principal:
    """One user of the gateway. ``session`` separates connections that a user's sessions do not share.

    ``id`` is the tenant in stores; ``"local"`` is the user of a gateway that a client started.
    """

    id: str
    session: str | None = None


LOCAL = Principal("local")


def get_pool_share(pool: WorkerPool | None, principal: Principal) -> WorkerPool | None:
    """Return the share of a worker pool for a principal: all for `LOCAL`, half (at least one) for others.

    Further programs of a user wait in that user's own queue. None is the process-wide pool.
    """
    if principal.id == LOCAL.id:
        return pool
    from codemode.workers.pool import get_pool_or_default

    default_pool = get_pool_or_default(pool)
    max_workers = default_pool.options.max_workers
    return default_pool.share(
        principal.id, max_workers=_DEFAULT_SHARE_WORKERS if max_workers is None else max(1, max_workers // 2)
    )


@dataclass(frozen=True)
class SharingScope:
    """The principals that share one connection."""

    principal_id: str | None = None
    session: str | None = None

    @property
    def owner_id(self) -> str:
        """The id for caches and sign-ins of the connection: `LOCAL` if all users share it."""
        return LOCAL.id if self.principal_id is None else self.principal_id

    def is_unshared_or_principal_local(self, principal: Principal) -> bool:
        """Return whether server messages on the connection concern this user alone."""
        return self.principal_id is not None or principal.id == LOCAL.id

    def includes(self, principal: Principal) -> bool:
        """Return whether a principal shares the connection."""
        if self.principal_id not in (None, principal.id):
            return False
        return self.session in (None, principal.session)


def get_sharing_scope(server: ServerConfig, principal: Principal) -> SharingScope:
    """Return the scope in which a principal shares the connection to a server."""
    match server.sharing or "user":
        case "shared":
            return SharingScope()
        case "user":
            return SharingScope(principal.id)
        case _:
            return SharingScope(principal.id, principal.session)


async def _ignore_progress(_message: str | None) -> None: ...


@dataclass(frozen=True, eq=False)
class CallOrigin:
    """The client request behind a running program.

    ``outer_id`` is the gateway's own id of the call. ``session`` is the SDK's ``ServerSession`` for questions to the
    client, or None. ``progress`` reports progress to the client. ``trace`` has the ``traceparent`` and ``tracestate``
    that servers receive.
    """

    principal: Principal = LOCAL
    outer_id: str | None = None
    session: Any = None
    progress: Callable[[str | None], Awaitable[None]] = _ignore_progress
    trace: Mapping[str, str] = field(default_factory=dict[str, str])


CURRENT_ORIGIN: ContextVar[CallOrigin | None] = ContextVar("codemode_mcp_origin", default=None)
"""The request that is served in this task and in those that it starts."""


def get_call_or_current_origin(context: Any) -> CallOrigin | None:
    """Return the origin of a tool call from its `ToolCallContext`, or that of the current request."""
    origin = getattr(context, "context", None)
    return origin if isinstance(origin, CallOrigin) else CURRENT_ORIGIN.get()


PRINCIPAL_KEY = "codemode.principal"
"""The ASGI scope key of the sender's principal id."""
REQUEST_ID_KEY = "codemode.request-id"
"""The ASGI scope key of the JSON-RPC request id, None without a request."""
METHOD_KEY = "codemode.method"
"""The ASGI scope key of the JSON-RPC method, None without a request."""
RESERVATION_KEY = "codemode.place"
"""The `RequestReservation` that counts a request for its user."""
SESSION_HEADER = "mcp-session-id"
_DISCONNECTED_KEY = "codemode.left"
_RESERVATION: ContextVar[Any] = ContextVar("codemode_mcp_place", default=None)
_PIPE_DISCONNECTED: ContextVar[asyncio.Event | None] = ContextVar("codemode_mcp_left", default=None)


def get_request_principal(ctx: Any) -> Principal:
    """Return the sender of a request; `LOCAL` without HTTP.

    ``session`` is set for handshake revisions only, whose session id was checked. Raises `LookupError` for a request
    that was not authenticated.
    """
    request = getattr(ctx, "request", None)
    if request is None:
        return LOCAL
    principal_id: str | None = request.scope.get(PRINCIPAL_KEY)
    if principal_id is None:
        raise LookupError("the request was not authenticated")
    has_session = ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
    return Principal(principal_id, request.headers.get(SESSION_HEADER) if has_session else None)


@contextmanager
def signal_disconnect_at_end(scope: MutableMapping[str, Any]) -> Generator[None]:
    """Set the event of `get_disconnect_event` when the block ends."""
    disconnected = scope[_DISCONNECTED_KEY] = asyncio.Event()
    try:
        yield
    finally:
        disconnected.set()


async def count_request_middleware(ctx: Any, call_next: Any) -> Any:
    """Count a request for its user until its handler ends: a middleware of the SDK's server.

    In a session the handler continues after the client disconnects, so reconnecting clients could start any number.
    """
    request = getattr(ctx, "request", None)
    reservation = None if request is None else request.scope.get(RESERVATION_KEY)
    token = _RESERVATION.set(reservation)
    try:
        if reservation is None:
            return await call_next(ctx)
        with reservation.keep_request_counted():
            return await call_next(ctx)
    finally:
        _RESERVATION.reset(token)


@contextmanager
def count_current_request() -> Generator[None]:
    """Count the current request for its user while the block runs, even after its answer."""
    reservation = _RESERVATION.get()
    with nullcontext() if reservation is None else reservation.keep_request_counted():
        yield


@contextmanager
def provide_pipe_disconnect_event() -> Generator[asyncio.Event]:
    """Yield the event to set once the stdio client can no longer answer questions."""
    disconnected = asyncio.Event()
    token = _PIPE_DISCONNECTED.set(disconnected)
    try:
        yield disconnected
    finally:
        _PIPE_DISCONNECTED.reset(token)


def get_disconnect_event(ctx: Any) -> asyncio.Event | None:
    """Return the event that is set once the client can no longer answer questions.

    For HTTP it follows the request, not the session: a killed client leaves its session open.
    """
    request = getattr(ctx, "request", None)
    return _PIPE_DISCONNECTED.get() if request is None else request.scope.get(_DISCONNECTED_KEY)
