"""Events of a run as small messages for a client that watches it. Decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar

from ..errors import CodeModeError, guest_view
from ..host.threads import LARGE_CHARACTERS, run_check
from ..trace.events import Event, GuestMessageEvent, NestedToolCallEvent, NestedToolResultEvent
from .hooks import InOrder


class Notifications:
    """Tells ``notify``, sync or async, of every call of a tool and of what a program says; a listener of one run.

    ``{"type": "tool_call_start", "toolName", "input", "callId"}``, ``{"type": "tool_call_end", "toolName", "callId",
    "status": "ok" | "error", "durationMs", "error"?: {"name", "message", "code"}}``, ``{"type": "notify", "event",
    "payload"}`` and ``{"type": "log", "level", "message", "metadata"}``, in order, each a plain dict of its own. A call
    that waits for somebody has ended when it goes on and ends. Nothing is told again in a replay. A call with a large
    input is told of a little later, and what follows after it.
    """

    name: ClassVar[str] = "notify"

    def __init__(self, notify: Callable[[dict[str, Any]], Any]) -> None:
        self._notify = InOrder(notify)
        self._turn = asyncio.Lock()  # who waits for it goes on in the order of coming
        self._reading = 0

    def __call__(self, event: Event) -> Awaitable[None] | None:
        """Hear an event."""
        large = isinstance(event, NestedToolCallEvent) and event.input_bytes >= LARGE_CHARACTERS
        if large or self._reading:
            self._reading += 1
            return self._told_in_turn(event)
        told = notification(event)
        return None if told is None else self._notify(told)

    async def _told_in_turn(self, event: Event) -> None:
        """Tell of an event whose input is read in a thread, or that comes after such a one."""
        try:
            async with self._turn:
                told = await run_check(LARGE_CHARACTERS, partial(notification, event))
                pending = None if told is None else self._notify(told)
        finally:
            self._reading -= 1
        if pending is not None:
            await pending


def notification(event: Event) -> dict[str, Any] | None:
    """Return what a client is told of an event; None: nothing."""
    match event:
        case NestedToolResultEvent():
            return None if event.replayed or event.status == "interrupted" else _ended(event)
        case NestedToolCallEvent():
            return None if event.replayed or event.resumed else _begun(event)
        case GuestMessageEvent(kind="log"):
            said = {"level": event.level, "message": event.message, "metadata": event.metadata}
            return {"type": "log", **said}
        case GuestMessageEvent():
            return {"type": "notify", "event": event.event, "payload": event.payload}
        case _:
            return None


def _begun(event: NestedToolCallEvent) -> dict[str, Any]:
    call = {"toolName": event.tool_name, "input": event.input, "callId": event.tool_call_id}
    return {"type": "tool_call_start", **call}


def _ended(event: NestedToolResultEvent) -> dict[str, Any]:
    told: dict[str, Any] = {"type": "tool_call_end", "toolName": event.tool_name, "callId": event.tool_call_id}
    told |= {"status": "ok" if event.status == "fulfilled" else "error", "durationMs": event.duration_ms}
    error = event.told_error
    if error is None and isinstance(event.error, CodeModeError):
        error = dict(zip(("name", "message", "code"), guest_view(event.error)[:3], strict=True))
    return told if error is None else {**told, "error": dict(error)}
