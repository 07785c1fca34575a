"""Tools as a user gives them, checked before anything is made of them. Knows no face."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic_ai import Tool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from codemode.plugins import WrongTypeError, refuse_framework_tool


def toolset_of(tools: Any) -> AbstractToolset[Any]:
    """Return a toolset as it is, and one of tools and functions. Raises `ValueError` for anything else."""
    if isinstance(tools, AbstractToolset):
        return cast("AbstractToolset[Any]", tools)
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise WrongTypeError(f"tools must be a toolset, or a list of tools and functions, got {_named(tools)}")
    given = list(cast("Iterable[Any]", tools))
    for one in given:
        if isinstance(one, AbstractToolset):
            raise WrongTypeError(f"{_named(one)} is no tool: give a toolset alone, several as CombinedToolset([...])")
        if callable(one) and not isinstance(one, Tool):
            refuse_framework_tool(one)
        if not isinstance(one, Tool) and not hasattr(one, "__name__"):
            raise WrongTypeError(f"tools must be pydantic_ai.Tool objects and functions, got {_named(one)}")
    return FunctionToolset(given)


def require_toolset(given: Any) -> None:
    """Raise `ValueError` for what is no toolset."""
    if not isinstance(given, AbstractToolset):
        raise WrongTypeError(f"what is wrapped must be a toolset, such as FunctionToolset([...]), got {_named(given)}")


def _named(given: Any) -> str:
    return type(given).__name__
