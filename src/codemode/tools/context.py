"""What a tool may know of its call, and what the host's pipeline is told of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from ..records import record

if TYPE_CHECKING:
    import asyncio


def _new_event() -> asyncio.Event:
    import asyncio

    return asyncio.Event()


async def _allow_everything(_edited: Any) -> None:
    """Refuse nothing: there is no pipeline."""


@record(kw_only=True)
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
    require_allowed: Callable[[Any], Awaitable[None]] = _allow_everything


class _PipelineNull(Enum):
    PIPELINE_NULL = "PIPELINE_NULL"

    def __repr__(self) -> str:
        return self.value


PIPELINE_NULL: Final = _PipelineNull.PIPELINE_NULL
"""What a hook of the pipeline returns to put null in place of an input or output; None changes nothing."""


@dataclass(frozen=True, kw_only=True)
class PipelineCall:
    """A call of a tool, as ``pipeline.before`` and ``pipeline.after`` are told of it.

    ``input`` is a copy of the validated input as plain JSON, for ``after`` of that with which the tool ran: changing it
    changes nothing, what counts is what the hook returns. ``source`` says whether a program makes the call or the model
    itself does ("invoke"). ``context`` is what the outer call was given. ``tool_id`` tells tools of one name
    apart where a catalog has several; elsewhere it is what programs call.
    """

    tool_name: str
    input: Any
    tool_call_id: str
    outer_tool_call_id: str
    source: Literal["script", "invoke"] = "script"
    context: Any = None
    tool_id: str = field(default="", compare=False)
