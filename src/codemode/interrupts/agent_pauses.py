"""Pauses of agents: what they go on from is kept by their framework, and here is what people are asked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..data.narrowing import is_mapping
from .interrupt import Interrupt, PendingRequest

KEPT_BY = "keptBy"
"""Under which a pause, and a record of it, name what goes on with them."""


def agent_pause(
    requests: Iterable[PendingRequest], *, kept_by: str, key: str, outer_tool_call_id: str, expires_at_ms: int
) -> Interrupt:
    """Return the pause of an agent as an interrupt that a store keeps and no program goes on from.

    ``kept_by`` is the framework, ``key`` tells this pause from every other.
    """
    continuation = {KEPT_BY: kept_by, "auth": {"nonce": key, "expiresAtMs": expires_at_ms}}
    return Interrupt(requests=tuple(requests), outer_tool_call_id=outer_tool_call_id, continuation=continuation)


def kept_by(continuation: Mapping[str, Any]) -> str | None:
    """Return the framework that goes on with this; None for what continues a program."""
    found = continuation.get(KEPT_BY)
    is_one = set(continuation) == {KEPT_BY, "auth"} and is_mapping(continuation["auth"])
    return found if is_one and isinstance(found, str) else None
