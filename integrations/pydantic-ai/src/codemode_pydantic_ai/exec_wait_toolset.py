"""The toolset that shows exec and wait: which of an agent's tools are behind them, and which stay beside."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic_ai import RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.tools import AgentDepsT, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from .exec_wait import EXEC, WAIT, ExecWaitFace
from .hiding_toolset import HidingToolset
from .sources import Behind

_LEFT_OUT_KINDS = ("tool-search", "capability-load")


@dataclass
class PairToolset(HidingToolset[AgentDepsT]):
    """Shows exec and wait in place of all tools but those that are named as direct ones."""

    async def _split(
        self, tools: dict[str, ToolsetTool[AgentDepsT]], ctx: RunContext[AgentDepsT]
    ) -> tuple[Collection[str], dict[str, ToolsetTool[AgentDepsT]]]:
        face = self._pair_face
        native = {name for name, tool in tools.items() if name in face.direct or tool.tool_def.kind == "output"}
        hidden = {
            name: _offered(tool)
            for name, tool in tools.items()
            if name not in native and _may_be_called(tool.tool_def, ctx)
        }
        for key, tool in (await face.sources.tools(ctx)).items():
            if key in hidden:
                raise UserError(f"two tools are called {key!r}: one of the agent, and one of its sources")
            hidden[key] = tool
        has_none = not hidden and not face.sources.servers
        if self.run is not None:
            self.run.offered = None if has_none else frozenset((EXEC, WAIT, *face.direct))
        return native, hidden

    def _has_nothing(self, hidden: Mapping[str, ToolsetTool[AgentDepsT]]) -> bool:
        return not hidden and not self._pair_face.sources.servers

    @property
    def _behind(self) -> AbstractToolset[AgentDepsT]:
        return Behind(self.wrapped)

    @property
    def _pair_face(self) -> ExecWaitFace:
        return cast("ExecWaitFace", self._made_face)


def _may_be_called(definition: ToolDefinition, ctx: RunContext[Any]) -> bool:
    """Tell whether a tool is in the catalog: what looks for tools is not, nor what belongs to no active capability."""
    if definition.tool_kind in _LEFT_OUT_KINDS:
        return False
    return definition.capability_id is None or definition.capability_id in ctx.active_capability_ids


def _offered(tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
    """Return a tool as one that can be called at once: programs have a search of their own."""
    said = tool.tool_def
    if not said.defer_loading and said.with_native is None and said.unless_native is None:
        return tool
    plain = dataclasses.replace(said, defer_loading=False, with_native=None, unless_native=None)
    return dataclasses.replace(tool, tool_def=plain)
