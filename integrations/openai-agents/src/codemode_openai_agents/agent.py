"""Replace the tools of an agent with codeMode, for each turn."""

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
from .tool import (
    CodeModeToolConfig,
    OptionsLike,
    ProgramFunctionTool,
    StateFactory,
    make_agent_options,
    make_agent_tool,
)

_MAX_CACHED_TOOLS = 8

ToolSelector: TypeAlias = Collection[str] | Callable[[FunctionTool], bool]
"""Tool names, or a predicate that takes a tool."""


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
    """Return a copy of an agent whose model gets ``codeMode`` instead of the agent's tools.

    Programs call its function tools (agents used as tools included) and the tools of its MCP servers; tools that the
    provider runs stay with the model.

    ``keep``: tools that the model calls directly; ``tools``: tools that programs call. Each is a collection of names or
    a predicate that takes a `FunctionTool`; ``tools`` may be "all". A tool in both is called both ways. The other
    parameters are those of `code_mode`.

    Raises `ValueError` for invalid options. A name that matches no tool ends the first run with a `UserError`.
    """
    if type(agent) is not Agent:
        raise ValueError(f"with_code_mode takes an Agent, not a {type(agent).__name__}: give its tools to code_mode")
    selection = ToolSelection(tools, keep)
    config = CodeModeToolConfig(
        make_agent_options(options, pool, listing, state, store),
        ApprovalPolicy(approve),
        pool,
        state,
        on_stream,
        library,
    )
    fields: dict[str, Any] = {field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)}
    builder = _ModelToolsBuilder(selection, config)
    # RunState.from_json looks for agents used as tools in this list before the first turn.
    fields["tools"] = [*agent.tools, builder.agent_tool]
    return _CodeModeAgent(**fields, builder=builder)


@dataclass
class _CodeModeAgent(Agent[Any]):
    builder: _ModelToolsBuilder | None = None

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """Return the tools that the model gets in this turn."""
        tools = await super().get_all_tools(run_context)
        assert self.builder is not None  # noqa: S101 - set by with_code_mode
        agent_tool = self.builder.agent_tool
        agent_tool_names = {tool.name for tool in self.tools if tool is not agent_tool}
        return self.builder.build(
            [tool for tool in tools if tool is not agent_tool],
            agent_tool_names,
            _collect_server_output_schemas(self.mcp_servers),
        )


class _ModelToolsBuilder:
    """Build the model's tools for a turn; equal sets of tools share one codeMode tool."""

    def __init__(self, selection: ToolSelection, config: CodeModeToolConfig) -> None:
        self._selection = selection
        self._config = config
        self._agent = ProgramAgent.create()
        self.agent_tool = make_agent_tool(self._agent, "")
        self._cache: OrderedDict[str, ProgramFunctionTool] = OrderedDict()

    def build(
        self, tools: Iterable[Tool], agent_tool_names: Collection[str], output_schemas: Mapping[str, Any]
    ) -> list[Tool]:
        """Return codeMode and the tools that stay with the model.

        ``agent_tool_names``: names of the agent's own tools. ``output_schemas``: output schemas of MCP tools, by tool
        name. Raises `UserError` for a name in the options that matches no tool.
        """
        model_tools: list[Tool] = []
        program_tools: list[FunctionTool] = []
        for tool in tools:
            availability = self._find_tool_routes(tool)
            if availability.in_programs and isinstance(tool, FunctionTool):
                program_tools.append(tool)
            if availability.directly:
                model_tools.append(self._apply_approval_rules(tool))
        self._require_existing_names({*agent_tool_names, *(tool.name for tool in [*program_tools, *model_tools])})
        if not program_tools:
            return model_tools
        if any(tool.name == TOOL_NAME for tool in [*program_tools, *model_tools]):
            raise UserError(f"a tool of the agent is called {TOOL_NAME!r}, which is the name of the tool for programs")
        return [self._get_or_create_code_mode_tool(program_tools, output_schemas).tool, *model_tools]

    def _apply_approval_rules(self, tool: Tool) -> Tool:
        """Apply the approval rules to a tool that stays with the model."""
        approvals = self._config.approvals
        if isinstance(tool, FunctionTool):
            return approvals.copy_tool_with_rules(tool)
        if approvals.is_gated_by_named_rule(tool.name):
            raise UserError(f"approve names {tool.name!r}, which the provider runs: its calls cannot need approval")
        return tool

    def _find_tool_routes(self, tool: Tool) -> Any:
        if not isinstance(tool, FunctionTool) or _is_direct_only(tool):
            return ToolSelection.ONLY_DIRECTLY
        return self._selection.find_routes(tool.name, None, tool)

    def _require_existing_names(self, known: set[str]) -> None:
        try:
            self._selection.require_names_among(known)
            self._config.approvals.require_existing_names(known)
        except ValueError as error:
            raise UserError(str(error)) from None

    def _get_or_create_code_mode_tool(
        self, tools: list[FunctionTool], output_schemas: Mapping[str, Any]
    ) -> ProgramFunctionTool:
        declared_schemas = {
            tool.name: output_schemas[tool.name] for tool in tools if tool.name in output_schemas and is_mcp_tool(tool)
        }
        key = json.dumps([declared_schemas, *map(_compute_tool_cache_key, tools)], sort_keys=True, default=repr)
        cached = self._cache.get(key)
        if cached is None:
            cached = self._cache[key] = ProgramFunctionTool(tools, self._config, self._agent, declared_schemas)
            while len(self._cache) > _MAX_CACHED_TOOLS:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(key)
        return cached.with_tools(tools)


def _collect_server_output_schemas(servers: Iterable[MCPServer]) -> dict[str, Any]:
    """Return the output schemas of MCP servers that return structured content, by tool name."""
    schemas: dict[str, Any] = {}
    for server in servers:
        for tool in (server.cached_tools or ()) if server.use_structured_content else ():
            schema: Any = getattr(tool, "output_schema", None) or getattr(tool, "outputSchema", None)
            schemas[tool.name] = None if tool.name in schemas else schema  # an ambiguous name
    return {name: schema for name, schema in schemas.items() if schema is not None}


def _is_direct_only(tool: FunctionTool) -> bool:
    """Return whether only the model can call a tool: deferred, hosted, in a namespace, or without a callable name."""
    by_hosted_programs = tool.allowed_callers is not None and "direct" not in tool.allowed_callers
    is_named = tool.qualified_name == tool.name and ProgramTool.is_callable_name(tool.name)
    return tool.defer_loading or by_hosted_programs or not is_named


def _compute_tool_cache_key(tool: FunctionTool) -> list[Any]:
    asks = tool.needs_approval is not False
    described = [tool.name, tool.description, tool.params_json_schema, tool.output_json_schema]
    return [*described, get_annotations(tool), asks, tool.strict_json_schema, id(getattr(tool, "__wrapped__", None))]
