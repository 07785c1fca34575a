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

from .approvals import ApprovalPolicy, ApprovalRules
from .conversion import get_annotations
from .outer_call import OnStream
from .pauses import TOOL_NAME, ProgramAgent
from .sdk_internals import is_mcp_tool
from .tool import OptionsLike, ProgramFunctionTool, StateFactory, ToolConfig, make_agent_tool, make_options

_MAX_CACHED_TOOLS = 8

ToolSelector: TypeAlias = Collection[str] | Callable[[FunctionTool], bool]
"""Names of tools, or a function of one."""


def with_code_mode(
    agent: Agent[Any],
    options: OptionsLike = None,
    *,
    keep: ToolSelector = (),
    tools: ToolSelector | Literal["all"] | None = None,
    approve: ApprovalRules | None = None,
    pool: WorkerPool | None = None,
    listing: Listing | None = None,
    state: StateFactory | None = None,
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
    config = ToolConfig(
        make_options(options, pool, listing, state, store), ApprovalPolicy(approve), pool, state, on_stream, library
    )
    fields: dict[str, Any] = {field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)}
    builder = _ModelToolsBuilder(selection, config)
    # Whoever restores a state looks for the agents behind tools among these, before any turn has begun.
    fields["tools"] = [*agent.tools, builder.agent_tool]
    return _AgentInCodeMode(**fields, builder=builder)


@dataclass
class _AgentInCodeMode(Agent[Any]):
    builder: _ModelToolsBuilder | None = None

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """Return what the model is offered in a turn."""
        tools = await super().get_all_tools(run_context)
        assert self.builder is not None  # noqa: S101 - given when it is made
        agent_tool = self.builder.agent_tool
        own_names = {tool.name for tool in self.tools if tool is not agent_tool}
        return self.builder.build(
            [tool for tool in tools if tool is not agent_tool], own_names, _server_output_schemas(self.mcp_servers)
        )


class _ModelToolsBuilder:
    """What is shown in place of tools, made once for those that are described alike."""

    def __init__(self, selection: ToolSelection, config: ToolConfig) -> None:
        self._selection = selection
        self._config = config
        self._agent = ProgramAgent.create()
        self.agent_tool = make_agent_tool(self._agent, "")
        self._cache: OrderedDict[str, ProgramFunctionTool] = OrderedDict()

    def build(self, tools: Iterable[Tool], own_names: Collection[str], output_schemas: Mapping[str, Any]) -> list[Tool]:
        """Return codeMode and what stays. Raises `UserError` for a name that fits no tool.

        ``named`` are the agent's own tools, ``outputs`` what servers declare of theirs.
        """
        model_tools: list[Tool] = []
        program_tools: list[FunctionTool] = []
        for tool in tools:
            availability = self._find_availability(tool)
            if availability.in_programs and isinstance(tool, FunctionTool):
                program_tools.append(tool)
            if availability.directly:
                model_tools.append(self._with_approval(tool))
        self._require_known({*own_names, *(tool.name for tool in [*program_tools, *model_tools])})
        if not program_tools:
            return model_tools
        if any(tool.name == TOOL_NAME for tool in [*program_tools, *model_tools]):
            raise UserError(f"a tool of the agent is called {TOOL_NAME!r}, which is the name of the tool for programs")
        return [self._get_or_create(program_tools, output_schemas).tool, *model_tools]

    def _with_approval(self, tool: Tool) -> Tool:
        """Return a tool that stays with the model: what a rule asks about in programs, it asks about there too."""
        approvals = self._config.approvals
        if isinstance(tool, FunctionTool):
            return approvals.with_approval(tool)
        if approvals.has_named_rule(tool.name):
            raise UserError(
                f"approve names {tool.name!r}, which the provider runs: nobody can be asked about its calls"
            )
        return tool

    def _find_availability(self, tool: Tool) -> Any:
        if not isinstance(tool, FunctionTool) or _is_direct_only(tool):
            return ToolSelection.ONLY_DIRECTLY
        return self._selection.find_routes(tool.name, None, tool)

    def _require_known(self, known: set[str]) -> None:
        try:
            self._selection.require_known(known)
            self._config.approvals.require_known(known)
        except ValueError as error:
            raise UserError(str(error)) from None

    def _get_or_create(self, tools: list[FunctionTool], output_schemas: Mapping[str, Any]) -> ProgramFunctionTool:
        declared_schemas = {
            tool.name: output_schemas[tool.name] for tool in tools if tool.name in output_schemas and is_mcp_tool(tool)
        }
        key = json.dumps([declared_schemas, *map(_description_key, tools)], sort_keys=True, default=repr)
        cached = self._cache.get(key)
        if cached is None:
            cached = self._cache[key] = ProgramFunctionTool(tools, self._config, self._agent, declared_schemas)
            while len(self._cache) > _MAX_CACHED_TOOLS:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(key)
        return cached.with_tools(tools)


def _server_output_schemas(servers: Iterable[MCPServer]) -> dict[str, Any]:
    """Return the schemas that servers declare for the structured content which they are asked for, by tools' names."""
    schemas: dict[str, Any] = {}
    for server in servers:
        for tool in (server.cached_tools or ()) if server.use_structured_content else ():
            schema: Any = getattr(tool, "output_schema", None) or getattr(tool, "outputSchema", None)
            schemas[tool.name] = None if tool.name in schemas else schema  # two of one name are told apart nowhere
    return {name: schema for name, schema in schemas.items() if schema is not None}


def _is_direct_only(tool: FunctionTool) -> bool:
    """Tell whether a model alone can call a tool: one that it searches for, or in a namespace, or that has no name."""
    by_hosted_programs = tool.allowed_callers is not None and "direct" not in tool.allowed_callers
    is_named = tool.qualified_name == tool.name and ProgramTool.is_callable_name(tool.name)
    return tool.defer_loading or by_hosted_programs or not is_named


def _description_key(tool: FunctionTool) -> list[Any]:
    asks = tool.needs_approval is not False
    described = [tool.name, tool.description, tool.params_json_schema, tool.output_json_schema]
    return [*described, get_annotations(tool), asks, tool.strict_json_schema, id(getattr(tool, "__wrapped__", None))]
