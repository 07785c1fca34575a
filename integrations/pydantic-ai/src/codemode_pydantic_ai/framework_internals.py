"""What pydantic-ai keeps to itself and this package cannot do without: the one file that names it.

Known are 2.62, which has no questions among deferred calls, to 2.68. In a version that keeps it otherwise nothing
breaks: what a function here says of itself is then left out.
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


async def ask_inline_handler_again(
    manager: ToolManager[Any], call: ToolCallPart, approval_required: ApprovalRequired, **settings: Any
) -> Any:
    """Ask an inline handler about a call and do what it decides, as `ToolManager.handle_call`; else raise ``waits``."""
    resolve: Any = getattr(manager, "_resolve_single_deferred", None)
    if resolve is None:
        raise approval_required
    return await resolve(call, approval_required, **settings)


def mark_as_questions(requests: DeferredToolRequests, questions: Collection[str]) -> None:
    """Let ``requests.kind`` say of these calls that they ask a question; else it says that they are external.

    It has no public counterpart that sets.
    """
    kinds: Any = getattr(requests, "_kinds", None)
    if isinstance(kinds, dict):
        cast("dict[str, Any]", kinds).update(dict.fromkeys(questions, "question"))


def flattened_parameter(tool: ToolsetTool[Any]) -> str | None:
    """Return the name of the only parameter of a function, a model that the framework shows as the input itself.

    What else has an input of one name, such as ``**kwargs`` or a server's open schema, keeps that name. The function of
    a tool is a method of its schema, which nothing else leads to where another toolset has renamed the tool.
    """
    schema = _function_schema(tool)
    is_its_own = getattr(schema, "validator", None) is tool.args_validator
    return cast("str | None", getattr(schema, "single_arg_name", None)) if is_its_own else None


def get_function(tool: ToolsetTool[Any]) -> Callable[..., Any] | None:
    """Return the function behind a tool; None for tools of other kinds."""
    return getattr(_function_schema(tool), "function", None)


def _function_schema(tool: ToolsetTool[Any]) -> Any:
    inner: Any = tool
    while not isinstance(inner, FunctionToolsetTool):
        inner = getattr(inner, "source_tool", None)
        if inner is None:
            return None
    return getattr(cast("FunctionToolsetTool[Any]", inner).call_func, "__self__", None)
