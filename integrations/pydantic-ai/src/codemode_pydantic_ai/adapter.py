"""pydantic-ai tools for the core's own `create_code_mode_tool`, outside any agent. Found through an entry point."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from pydantic_ai import RunContext, Tool
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage

import codemode
from codemode import ToolCallContext

from .hidden_tools import HiddenTool, annotations_of
from .nested import NestedCalls
from .turns import CallBudget


def register(register_adapter: Callable[[Callable[[Any], bool], Callable[[Any], codemode.Tool]], None]) -> None:
    """Teach the core these tools."""
    register_adapter(lambda value: isinstance(value, Tool), convert)


def convert(tool: Tool[Any]) -> codemode.Tool:
    """Return the tool of a program that runs a pydantic-ai tool.

    ``context`` of the codeMode call is its `RunContext` or its deps. ``requires_approval`` is the core's approval.
    """
    definition = tool.tool_def
    return HiddenTool(
        definition.name,
        execute=partial(_execute, tool),
        description=definition.description or "",
        input_schema=definition.parameters_json_schema,
        output_schema=definition.return_schema,
        needs_approval=tool.requires_approval,
        annotations=annotations_of(definition),
    )


async def _execute(tool: Tool[Any], arguments: Any, context: ToolCallContext) -> Any:
    ctx = _run_context(context)
    toolset = FunctionToolset[Any]([tool])
    calls = NestedCalls(toolset, await toolset.get_tools(ctx), ctx, CallBudget())
    return await calls.call(tool.name, arguments, context, approved=tool.requires_approval)


def _run_context(context: ToolCallContext) -> RunContext[Any]:
    given: Any = context.context
    if isinstance(given, RunContext):
        return cast("RunContext[Any]", given)
    # Outside an agent nothing counts retries; without one the tool's own message would not come through.
    call_id = context.tool_call_id
    return RunContext(deps=given, model=TestModel(), usage=RunUsage(), tool_call_id=call_id, max_retries=1)
