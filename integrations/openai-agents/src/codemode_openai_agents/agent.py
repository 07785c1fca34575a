"""An agent whose tools are in code mode: its function tools and those of its MCP servers, as each turn finds them."""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agents import Agent, FunctionTool, RunContextWrapper, Tool, UserError
from agents.mcp import MCPServer

from codemode import ProgramLibrary, WorkerPool
from codemode import Tool as ProgramTool
from codemode.plugins import Listing, ToolSelection
from codemode.stores import StoreLike

from .approvals import ApprovalRules, Approvals
from .conversion import annotations_of
from .outer_call import OnStream
from .pauses import NAME, HoldingAgent
from .sdk import is_of_server
from .tool import Making, Options, StateOf, ToolInCodeMode, settings_of, tool_of

_MAX_MADE = 8

Chosen: TypeAlias = Collection[str] | Callable[[FunctionTool], bool]
"""Names of tools, or a function of one."""


def with_code_mode(
    agent: Agent[Any],
    options: Options = None,
    *,
    keep: Chosen = (),
    tools: Chosen | Literal["all"] | None = None,
    approve: ApprovalRules | None = None,
    pool: WorkerPool | None = None,
    listing: Listing | None = None,
    state: StateOf | None = None,
    on_stream: OnStream | None = None,
    store: StoreLike | None = None,
    library: ProgramLibrary | None = None,
) -> Agent[Any]:
    """Return an agent like this one, whose model is offered ``codeMode`` in place of its tools.

    Its function tools, agents behind tools among them, and the tools of its MCP servers are in programs; what the
    provider runs stays. ``keep`` says which tools the model goes on calling itself, ``tools`` which are in programs:
    names, or a function of a `FunctionTool`; ``tools`` may be "all". One in both is called both ways. The rest is as
    for `code_mode`. Raises `ValueError` for wrong options; a name that fits no tool ends the first run with a
    `UserError`.
    """
    if type(agent) is not Agent:
        raise ValueError(f"with_code_mode takes an Agent, not a {type(agent).__name__}: give its tools to code_mode")
    selection = ToolSelection(tools, keep)
    making = Making(
        settings_of(options, pool, listing, state, store), Approvals(approve), pool, state, on_stream, library
    )
    given: dict[str, Any] = {one.name: getattr(agent, one.name) for one in dataclasses.fields(agent)}
    hiding = _Hiding(selection, making)
    # Whoever restores a state looks for the agents behind tools among these, before any turn has begun.
    given["tools"] = [*agent.tools, hiding.anchor]
    return _AgentInCodeMode(**given, hiding=hiding)


@dataclass
class _AgentInCodeMode(Agent[Any]):
    hiding: _Hiding | None = None

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """Return what the model is offered in a turn."""
        found = await super().get_all_tools(run_context)
        assert self.hiding is not None  # noqa: S101 - given when it is made
        anchor = self.hiding.anchor
        named = {one.name for one in self.tools if one is not anchor}
        return self.hiding.shown([one for one in found if one is not anchor], named, _outputs(self.mcp_servers))


class _Hiding:
    """What is shown in place of tools, made once for those that are described alike."""

    def __init__(self, selection: ToolSelection, making: Making) -> None:
        self._selection = selection
        self._making = making
        self._agent = HoldingAgent.new()
        self.anchor = tool_of(self._agent, "")
        self._made: OrderedDict[str, ToolInCodeMode] = OrderedDict()

    def shown(self, found: Iterable[Tool], named: Collection[str], outputs: Mapping[str, Any]) -> list[Tool]:
        """Return codeMode and what stays. Raises `UserError` for a name that fits no tool.

        ``named`` are the agent's own tools, ``outputs`` what servers declare of theirs.
        """
        shown: list[Tool] = []
        hidden: list[FunctionTool] = []
        for one in found:
            called = self._places(one)
            if called.in_programs and isinstance(one, FunctionTool):
                hidden.append(one)
            if called.directly:
                shown.append(self._gated(one))
        self._require_known({*named, *(one.name for one in [*hidden, *shown])})
        if not hidden:
            return shown
        if any(one.name == NAME for one in [*hidden, *shown]):
            raise UserError(f"a tool of the agent is called {NAME!r}, which is the name of the tool for programs")
        return [self._of(hidden, outputs).tool, *shown]

    def _gated(self, tool: Tool) -> Tool:
        """Return a tool that stays with the model: what a rule asks about in programs, it asks about there too."""
        approvals = self._making.approvals
        if isinstance(tool, FunctionTool):
            return approvals.gated(tool)
        if approvals.names(tool.name):
            raise UserError(
                f"approve names {tool.name!r}, which the provider runs: nobody can be asked about its calls"
            )
        return tool

    def _places(self, tool: Tool) -> Any:
        if not isinstance(tool, FunctionTool) or _stays(tool):
            return ToolSelection.ONLY_DIRECTLY
        return self._selection.find_places(tool.name, None, tool)

    def _require_known(self, known: set[str]) -> None:
        try:
            self._selection.require_known(known)
            self._making.approvals.require_known(known)
        except ValueError as error:
            raise UserError(str(error)) from None

    def _of(self, tools: list[FunctionTool], outputs: Mapping[str, Any]) -> ToolInCodeMode:
        declared = {one.name: outputs[one.name] for one in tools if one.name in outputs and is_of_server(one)}
        key = json.dumps([declared, *map(_said, tools)], sort_keys=True, default=repr)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = ToolInCodeMode(tools, self._making, self._agent, declared)
            while len(self._made) > _MAX_MADE:
                self._made.popitem(last=False)
        else:
            self._made.move_to_end(key)
        return made.having(tools)


def _outputs(servers: Iterable[MCPServer]) -> dict[str, Any]:
    """Return the schemas that servers declare for the structured content which they are asked for, by tools' names."""
    found: dict[str, Any] = {}
    for server in servers:
        for tool in (server.cached_tools or ()) if server.use_structured_content else ():
            said: Any = getattr(tool, "output_schema", None) or getattr(tool, "outputSchema", None)
            found[tool.name] = None if tool.name in found else said  # two of one name are told apart nowhere
    return {name: schema for name, schema in found.items() if schema is not None}


def _stays(tool: FunctionTool) -> bool:
    """Tell whether a model alone can call a tool: one that it searches for, or in a namespace, or that has no name."""
    by_hosted_programs = tool.allowed_callers is not None and "direct" not in tool.allowed_callers
    is_named = tool.qualified_name == tool.name and ProgramTool.is_callable_name(tool.name)
    return tool.defer_loading or by_hosted_programs or not is_named


def _said(tool: FunctionTool) -> list[Any]:
    asks = tool.needs_approval is not False
    described = [tool.name, tool.description, tool.params_json_schema, tool.output_json_schema]
    return [*described, annotations_of(tool), asks, tool.strict_json_schema, id(getattr(tool, "__wrapped__", None))]
