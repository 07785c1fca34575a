"""Who may change what a function has returned before a program has it. Calls nothing.

Toolsets of somebody's own around it, and capabilities with hooks: then what the function says of itself is not sure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

_HOOKS = ("after_tool_execute", "wrap_tool_execute", "on_tool_execute_error")
_PASSING_ON = ("pydantic_ai", "codemode_pydantic_ai")
_CALLING_OTHERS = "pydantic_ai.capabilities.hooks"


def as_declared(
    tools: Mapping[str, ToolsetTool[Any]], toolset: AbstractToolset[Any], capability: AbstractCapability[Any] | None
) -> Mapping[str, ToolsetTool[Any]]:
    """Return tools of a toolset; where somebody may change what they return, such as lead to no function."""
    if not (_is_changed_around(toolset) or _is_hooked(capability)):
        return tools
    return {
        name: ToolsetTool(
            toolset=tool.toolset,
            tool_def=tool.tool_def,
            max_retries=tool.max_retries,
            args_validator=tool.args_validator,
        )
        for name, tool in tools.items()
    }


def _is_changed_around(toolset: AbstractToolset[Any]) -> bool:
    pending: list[Any] = [toolset]
    while pending:
        one = pending.pop()
        if not _passes_on(cast("Any", type(one)).call_tool):
            return True
        inner = (getattr(one, "wrapped", None), *getattr(one, "toolsets", ()))
        found: list[Any] = [other for other in inner if isinstance(other, AbstractToolset)]
        leaves: list[Any] = []
        one.apply(leaves.append)
        if not found and any(leaf is not one for leaf in leaves):  # what a function has made, and maybe wrapped
            return True
        pending += found
    return False


def _is_hooked(capability: AbstractCapability[Any] | None) -> bool:
    found: list[bool] = []

    def look(one: AbstractCapability[Any]) -> None:
        methods = [cast("Any", getattr(type(one), name, None)) for name in _HOOKS]
        known = [method for method in methods if method is not None]
        found.append(any(not _passes_on(method) or method.__module__ == _CALLING_OTHERS for method in known))
        inner = getattr(one, "wrapped", None)
        found.append(isinstance(inner, AbstractCapability) and _is_hooked(cast("AbstractCapability[Any]", inner)))

    if capability is not None:
        capability.apply(look)
    return any(found)


def _passes_on(method: Any) -> bool:
    return str(method.__module__).partition(".")[0] in _PASSING_ON
