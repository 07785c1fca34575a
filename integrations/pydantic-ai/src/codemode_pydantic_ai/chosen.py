"""Which of an agent's tools are in programs, and which the model goes on calling itself, by ``tools`` and ``keep``."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic_ai import RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import (
    AbstractToolset,
    CombinedToolset,
    DynamicToolset,
    FunctionToolset,
    PrefixedToolset,
    RenamedToolset,
    WrapperToolset,
)

from codemode.plugins import Places, Selection, places

Kept: TypeAlias = (
    Collection[str] | Mapping[str, Any] | Callable[[RunContext[Any], ToolDefinition], bool | Awaitable[bool]]
)
"""Names, what a tool's metadata holds, or a function of the run and a tool's definition."""
InPrograms: TypeAlias = Kept | Literal["all"]
"""The same, or all tools."""


@dataclass(frozen=True)
class Chosen:
    """What an agent says of its tools. Raises `ValueError` for what says nothing of any."""

    tools: InPrograms | None
    keep: Kept
    _selections: tuple[Selection | None, Selection] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read what was said."""
        tools = None if self.tools is None else Selection(self.tools, "tools", may_be_all=True)
        object.__setattr__(self, "_selections", (tools, Selection(self.keep, "keep")))

    async def places(self, definition: ToolDefinition, ctx: RunContext[Any]) -> Places:
        """Return where a tool is called that programs may call."""
        tools, keep = self._selections
        is_kept = await _has(keep, definition, ctx)
        return places(is_kept=is_kept, is_named=None if tools is None else await _has(tools, definition, ctx))

    def require_known(self, there: Collection[str], toolset: AbstractToolset[Any]) -> None:
        """Raise `UserError` for a name that fits no tool of a toolset, which has these in this step."""
        known: set[str] = {*there, *_names(toolset)}
        try:
            for one in self._selections:
                if one is not None and one.names:
                    one.require_known(known)
        except ValueError as error:
            if not _may_have_others(toolset):
                raise UserError(str(error)) from None


async def _has(selection: Selection, definition: ToolDefinition, ctx: RunContext[Any]) -> bool:
    if selection.predicate is None:
        return selection.has(definition.name, definition.metadata)
    answer = selection.predicate(ctx, definition)
    return bool(await answer if inspect.isawaitable(answer) else answer)


def _names(toolset: AbstractToolset[Any]) -> Iterator[str]:
    """Return the names of tools that a toolset has in some step, as far as it says so: it may hide them in this one."""
    if isinstance(toolset, FunctionToolset):
        yield from toolset.tools
    elif isinstance(toolset, CombinedToolset):
        for one in toolset.toolsets:
            yield from _names(one)
    elif isinstance(toolset, PrefixedToolset):
        yield from (f"{toolset.prefix}_{name}" for name in _names(toolset.wrapped))
    elif isinstance(toolset, RenamedToolset):
        renamed = {old: new for new, old in toolset.name_map.items()}
        yield from (renamed.get(name, name) for name in _names(toolset.wrapped))
    elif isinstance(toolset, WrapperToolset):
        yield from _names(toolset.wrapped)


def _may_have_others(toolset: AbstractToolset[Any]) -> bool:
    """Tell whether a toolset may have quite other tools in another step."""
    if isinstance(toolset, CombinedToolset):
        return any(map(_may_have_others, toolset.toolsets))
    if isinstance(toolset, WrapperToolset):
        return _may_have_others(toolset.wrapped)
    return isinstance(toolset, DynamicToolset)
