"""What the host's pipeline is told of a call of a tool, and its word for null. Performs nothing."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Any, Final, Literal

from ..dataclass import dataclass


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
