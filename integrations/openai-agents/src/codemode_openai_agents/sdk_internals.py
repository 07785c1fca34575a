"""Access private functions of openai-agents; the only module that does."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

from agents import FunctionTool, RunContextWrapper, ToolOriginType
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall

_INTERNAL_FUNCTIONS = {
    "invoke": ("agents.tool", "invoke_function_tool"),
    "format_error": ("agents.tool", "maybe_invoke_function_tool_failure_error_function"),
    "set_formatter": ("agents.tool", "set_function_tool_failure_error_function"),
    "origin": ("agents.tool", "get_function_tool_origin"),
    "needs_approval": ("agents.run_internal.tool_execution", "function_needs_approval"),
    "paused_run": ("agents.agent_tool_state", "consume_agent_tool_run_result"),
    "resume_with": ("agents.agent_tool_state", "record_agent_tool_resume_state"),
    "scope": ("agents.agent_tool_state", "get_agent_tool_state_scope"),
}


@dataclass(frozen=True)
class _SdkFunctions:
    invoke: Any
    format_error: Any
    set_formatter: Any
    origin: Any
    needs_approval: Any
    paused_run: Any
    resume_with: Any
    scope: Any


@cache
def load_sdk_functions() -> _SdkFunctions:
    """Return the SDK's private functions. Raises `ImportError` with the supported version if one is missing."""
    found: dict[str, Any] = {}
    for name, (module, function) in _INTERNAL_FUNCTIONS.items():
        try:
            found[name] = getattr(import_module(module), function)
        except (ImportError, AttributeError):
            raise ImportError(
                f"codemode-openai-agents supports openai-agents 0.24; {version('openai-agents')} has no"
                f" {module}.{function}"
            ) from None
    return _SdkFunctions(**found)


def make_raising_copy(tool: FunctionTool) -> FunctionTool:
    """Return a copy of a tool that raises errors and timeouts instead of returning a text for the model."""
    copied = load_sdk_functions().set_formatter(copy.copy(tool), None)
    copied.timeout_behavior = "raise_exception"
    return copied


async def invoke_tool(tool: FunctionTool, context: ToolContext[Any], arguments: str) -> Any:
    """Call a tool as the SDK does, with its timeout and the context type that it declares."""
    return await load_sdk_functions().invoke(function_tool=tool, context=context, arguments=arguments)


async def format_tool_error(tool: FunctionTool, context: ToolContext[Any], error: BaseException) -> str | None:
    """Return the text of the tool's ``failure_error_function`` for an error; None if the error ends the run."""
    return await load_sdk_functions().format_error(function_tool=tool, context=context, error=error)


async def needs_approval(tool: FunctionTool, context: RunContextWrapper[Any], call: ResponseFunctionToolCall) -> bool:
    """Return whether the tool's ``needs_approval`` applies to a call."""
    return (await load_sdk_functions().needs_approval(tool, context, call)).outcome != "invoke"


def is_mcp_tool(tool: FunctionTool) -> bool:
    """Return whether a tool comes from an MCP server."""
    origin = load_sdk_functions().origin(tool)
    return origin is not None and origin.type is ToolOriginType.MCP


def take_paused_run(context: ToolContext[Any]) -> Any:
    """Take the paused run of the agent behind this call's tool, or None."""
    call = context.tool_call
    found = (
        None if call is None else load_sdk_functions().paused_run(call, scope_id=load_sdk_functions().scope(context))
    )
    return found if getattr(found, "interruptions", None) else None


def set_resume_state(context: ToolContext[Any], state: Any) -> None:
    """Make the next invocation in this context resume an agent's run from a state with all decisions."""
    load_sdk_functions().resume_with(context.tool_call, state, scope_id=load_sdk_functions().scope(context))


def get_tool_agent(tool: FunctionTool) -> Any:
    """Return the agent that a tool runs; None if it runs none."""
    return getattr(tool, "_agent_instance", None)
