"""Which request of a client a call serves: what `ToolCallContext.context` is wherever the gateway runs a program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ..gateway.principals import LOCAL, Principal


async def _untold(_message: str | None) -> None: ...


@dataclass(frozen=True, eq=False)
class CallOrigin:
    """One request of a client, for as long as its program runs; a program that goes on later has another one.

    ``outer_id`` is the gateway's own id of it, never the client's. ``session`` is the SDK's ``ServerSession`` of the
    request, through which a client is asked, None where nobody can be. ``progress`` tells the client that something
    goes on. ``trace`` is what of its ``_meta`` is passed on to servers: ``traceparent`` and ``tracestate``.
    """

    principal: Principal = LOCAL
    outer_id: str | None = None
    session: Any = None
    progress: Callable[[str | None], Awaitable[None]] = _untold
    trace: Mapping[str, str] = field(default_factory=dict[str, str])


ORIGIN: ContextVar[CallOrigin | None] = ContextVar("codemode_mcp_origin", default=None)
"""The request that is served in this task and in those that it starts."""


def origin_of(context: Any) -> CallOrigin | None:
    """Return the origin of a call from its `ToolCallContext`, or that of the request that is being served."""
    given = getattr(context, "context", None)
    return given if isinstance(given, CallOrigin) else ORIGIN.get()
