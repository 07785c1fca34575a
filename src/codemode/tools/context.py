"""The context of a tool call, for tools and for the host's pipeline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from ..records import record

if TYPE_CHECKING:
    import asyncio


async def _allow_everything(_edited: Any) -> None:
    """Refuse nothing: there is no pipeline."""


@record(kw_only=True)
class AnsweredInterrupt:
    """The pause that a resumed tool requested: its request id, its payload and the answer."""

    id: str
    payload: Mapping[str, Any]
    resolution: Any


@record(kw_only=True)
class ToolCallContext:
    """The context of the call that a tool serves.

    ``messages`` and ``context`` come from the outer call. ``aborted`` is set when the invocation ends before the tool.
    ``interrupt`` is None unless this call paused before and is now resumed. An async tool that asks a person does so
    ``with context.asking_person():``, which stops the program's clock if it waits for nothing else. A tool that lets a
    person edit its input calls ``await context.require_allowed(edited)`` before it continues, which raises the
    objections of the host's pipeline.
    """

    tool_call_id: str
    outer_tool_call_id: str
    messages: Sequence[Any] = ()
    context: Any = None
    aborted: asyncio.Event = cast("asyncio.Event", None)  # a new one for each context
    interrupt: AnsweredInterrupt | None = None
    asking_person: Callable[[], AbstractContextManager[None]] = nullcontext
    require_allowed: Callable[[Any], Awaitable[None]] = _allow_everything

    def __post_init__(self) -> None:
        """Create the event unless the context copies another."""
        if not self.aborted:
            import asyncio

            object.__setattr__(self, "aborted", asyncio.Event())


class _PipelineNull(Enum):
    PIPELINE_NULL = "PIPELINE_NULL"

    def __repr__(self) -> str:
        return self.value


PIPELINE_NULL: Final = _PipelineNull.PIPELINE_NULL
"""Returned by a hook of the pipeline to replace an input or output with null; None changes nothing."""


@record(kw_only=True)
class PipelineCall:
    """A tool call, as passed to ``pipeline.before`` and ``pipeline.after``.

    ``input`` is a copy of the validated input as plain JSON, for ``after`` of the input with which the tool ran; only
    the return value of the hook has an effect. ``source`` says whether a program ("script") or the model ("invoke")
    makes the call. ``context`` comes from the outer call. ``tool_id`` distinguishes tools with the same name in a
    catalog; elsewhere it is the name that programs call.
    """

    tool_name: str
    input: Any
    tool_call_id: str
    outer_tool_call_id: str
    source: Literal["script", "invoke"] = "script"
    context: Any = None
    tool_id: str = ""
