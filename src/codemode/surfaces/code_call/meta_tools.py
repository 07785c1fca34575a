"""A meta-tool as a `Tool`, for whatever takes one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ...execution.call_context import CallContext
from ...tools.context import ToolCallContext
from ...tools.tool import Tool
from .description import describe_meta_tool, input_schema_of, output_schema_of
from .names import meta_name
from .options import CodeCallOptions


def meta_tool_as_tool(kind: str, options: CodeCallOptions, call: Callable[..., Coroutine[Any, Any, Any]]) -> Tool:
    """Return a meta-tool, whose calls ``call`` performs. Its calls bring along what the outer call has."""
    name = meta_name(kind, options.names)

    async def execute(value: Any, context: ToolCallContext) -> Any:
        outer = CallContext(tool_call_id=context.tool_call_id, messages=context.messages, context=context.context)
        return await call(name, value, outer)

    return Tool(
        name,
        execute=execute,
        description=describe_meta_tool(kind, options),
        input_schema=input_schema_of(kind, options),
        output_schema=output_schema_of(kind),
        annotations={"readOnlyHint": kind in ("search", "describe")},
    )
