"""Access private attributes of pydantic-ai; the only module that does.

Tested with 2.62 (without questions among deferred calls) to 2.68. With other internals the functions do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, cast

from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import ToolsetTool
from pydantic_ai.toolsets.function import FunctionToolsetTool


async def ask_inline_handler_again_or_raise(
    manager: ToolManager[Any], call: ToolCallPart, approval_required: ApprovalRequired, **settings: Any
) -> Any:
    """Ask an inline handler about a call and apply its decision, or raise ``approval_required`` if there is none."""
    resolve: Any = getattr(manager, "_resolve_single_deferred", None)
    if resolve is None:
        raise approval_required
    return await resolve(call, approval_required, **settings)


def mark_as_questions(requests: DeferredToolRequests, questions: Collection[str]) -> None:
    """Make ``requests.kind`` return "question" for these calls; the framework has no public setter."""
    kinds: Any = getattr(requests, "_kinds", None)
    if isinstance(kinds, dict):
        cast("dict[str, Any]", kinds).update(dict.fromkeys(questions, "question"))


def find_flattened_parameter(tool: ToolsetTool[Any]) -> str | None:
    """Return the name of a function's only parameter if the framework flattens that parameter's model into the input.

    Other inputs with one name, such as ``**kwargs`` or a server's open schema, are not flattened.
    """
    schema = _find_function_schema(tool)
    is_its_own = getattr(schema, "validator", None) is tool.args_validator
    return cast("str | None", getattr(schema, "single_arg_name", None)) if is_its_own else None


def get_function(tool: ToolsetTool[Any]) -> Callable[..., Any] | None:
    """Return the function behind a tool, or None."""
    return getattr(_find_function_schema(tool), "function", None)


def _find_function_schema(tool: ToolsetTool[Any]) -> Any:
    inner: Any = tool
    while not isinstance(inner, FunctionToolsetTool):
        inner = getattr(inner, "source_tool", None)
        if inner is None:
            return None
    return getattr(cast("FunctionToolsetTool[Any]", inner).call_func, "__self__", None)
