"""The context of a call: what its tool may know of it. Knows no program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..dataclass import dataclass

if TYPE_CHECKING:
    import asyncio


def _new_event() -> asyncio.Event:
    import asyncio

    return asyncio.Event()


async def _allowed(_edited: Any) -> None:
    """Refuse nothing: there is no pipeline."""


@dataclass(frozen=True, kw_only=True)
class AnsweredInterrupt:
    """The pause that a resumed tool asked for: its request id, its payload, and the answer."""

    id: str
    payload: Mapping[str, Any]
    resolution: Any


@dataclass(frozen=True, kw_only=True)
class ToolCallContext:
    """What a tool may know of the call it serves.

    ``messages`` and ``context`` are what the outer call was given. ``aborted`` is set when the invocation ends before
    the tool does. ``interrupt`` is None unless this call paused before and is now resumed. An async tool that asks a
    person does so ``with context.asking_person():``, and the program's time stands still when it waits for that alone.
    A tool that lets a person edit its input itself does ``await context.require_allowed(edited)`` before it goes on:
    that raises what the host's pipeline has against it.
    """

    tool_call_id: str
    outer_tool_call_id: str
    messages: Sequence[Any] = ()
    context: Any = None
    aborted: asyncio.Event = field(default_factory=_new_event)
    interrupt: AnsweredInterrupt | None = None
    asking_person: Callable[[], AbstractContextManager[None]] = nullcontext
    require_allowed: Callable[[Any], Awaitable[None]] = _allowed
