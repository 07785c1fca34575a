"""Toolset that replaces other tools with those of a surface."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakValueDictionary

from pydantic_ai import RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UserError
from pydantic_ai.tools import AgentDepsT
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset

from codemode import WorkerPool
from codemode.plugins import ToolSelection

from .conversion import is_model_only
from .nested import require_outside_workflow
from .outer_call import AgentRunState, OuterCall
from .surfaces import (
    MAX_RETRIES,
    AgentToolSelection,
    ProgramToolSelector,
    Surface,
    SurfaceTool,
    ToolSelector,
    require_valid_selectors_and_retries,
)


def to_toolset(tools: Any) -> AbstractToolset[Any]:
    """Return a toolset, wrapping tools and functions in one. Raises `ValueError` for other values."""
    if isinstance(tools, AbstractToolset):
        return cast("AbstractToolset[Any]", tools)
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise ValueError(  # noqa: TRY004
            f"tools must be a toolset, or a list of tools and functions, got {_get_type_name(tools)}"
        )
    tools_list = list(cast("Iterable[Any]", tools))
    for tool in tools_list:
        if isinstance(tool, AbstractToolset):
            raise ValueError(  # noqa: TRY004
                f"{_get_type_name(tool)} is no tool: give a toolset alone, several as CombinedToolset([...])"
            )
        if callable(tool) and not isinstance(tool, Tool):
            ToolSelection.refuse_framework_tool(tool)
        if not isinstance(tool, Tool) and not hasattr(tool, "__name__"):
            raise ValueError(f"tools must be pydantic_ai.Tool objects and functions, got {_get_type_name(tool)}")
    return FunctionToolset(tools_list)


def require_toolset(value: Any) -> None:
    """Raise `ValueError` unless the value is a toolset."""
    if not isinstance(value, AbstractToolset):
        raise ValueError(f"expected a toolset, such as FunctionToolset([...]), got {_get_type_name(value)}")  # noqa: TRY004


def _get_type_name(value: Any) -> str:
    return type(value).__name__


# Custom toolsets and capabilities with hooks may change results, so that the function's return type is not reliable.

_RESULT_HOOKS = ("after_tool_execute", "wrap_tool_execute", "on_tool_execute_error")
_FRAMEWORK_PACKAGES = ("pydantic_ai", "codemode_pydantic_ai")
_HOOKS_MODULE = "pydantic_ai.capabilities.hooks"


def hide_functions_if_results_may_change(
    tools: Mapping[str, ToolsetTool[Any]], toolset: AbstractToolset[Any], capability: AbstractCapability[Any] | None
) -> Mapping[str, ToolsetTool[Any]]:
    """Return the tools, without their functions if a custom toolset or a hook may change their results."""
    if not (_has_custom_wrapper(toolset) or _has_result_hooks(capability)):
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


def _has_custom_wrapper(toolset: AbstractToolset[Any]) -> bool:
    pending: list[Any] = [toolset]
    while pending:
        current = pending.pop()
        if not _is_framework_method(cast("Any", type(current)).call_tool):
            return True
        candidates = (getattr(current, "wrapped", None), *getattr(current, "toolsets", ()))
        inner_toolsets: list[Any] = [candidate for candidate in candidates if isinstance(candidate, AbstractToolset)]
        leaves: list[Any] = []
        current.apply(leaves.append)
        if not inner_toolsets and any(
            leaf is not current for leaf in leaves
        ):  # a function made it and may have wrapped it
            return True
        pending += inner_toolsets
    return False


def _has_result_hooks(capability: AbstractCapability[Any] | None) -> bool:
    results: list[bool] = []

    def record_if_hooked(current: AbstractCapability[Any]) -> None:
        methods = [cast("Any", getattr(type(current), name, None)) for name in _RESULT_HOOKS]
        existing_methods = [method for method in methods if method is not None]
        results.append(
            any(not _is_framework_method(method) or method.__module__ == _HOOKS_MODULE for method in existing_methods)
        )
        wrapped = getattr(current, "wrapped", None)
        results.append(
            isinstance(wrapped, AbstractCapability) and _has_result_hooks(cast("AbstractCapability[Any]", wrapped))
        )

    if capability is not None:
        capability.apply(record_if_hooked)
    return any(results)


def _is_framework_method(method: Any) -> bool:
    return str(method.__module__).partition(".")[0] in _FRAMEWORK_PACKAGES


@dataclass(kw_only=True)
class SurfaceToolsetTool(ToolsetTool[Any]):
    """A surface tool in one step, with the tools that programs can call."""

    surface_tool: SurfaceTool
    surface: Surface
    program_tools: dict[str, ToolsetTool[Any]]


@dataclass
class SurfaceToolset(WrapperToolset[AgentDepsT]):
    """Replaces the tools of another toolset with those of a surface, except those that only the model can call."""

    options: Any = None
    keep: ToolSelector = ()
    max_retries: int = MAX_RETRIES
    pool: WorkerPool | None = None
    tools: ProgramToolSelector | None = None
    surface: Surface | None = field(default=None, repr=False)
    run_state: AgentRunState | None = field(default=None, repr=False)
    covers_all_agent_tools: bool = field(default=False, repr=False)
    _run_states: WeakValueDictionary[str, AgentRunState] = field(
        default_factory=WeakValueDictionary[str, AgentRunState], repr=False
    )

    def __post_init__(self) -> None:
        """Validate the options at creation."""
        require_toolset(self.wrapped)
        require_valid_selectors_and_retries(self.keep, self.max_retries, self.tools)
        if self.surface is None:
            self.surface = self._make_surface()

    def _make_surface(self) -> Surface:
        raise NotImplementedError

    @property
    def _active_surface(self) -> Surface:
        assert self.surface is not None  # noqa: S101 - made with the toolset
        return self.surface

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """Return a copy with its own state for this run."""
        return dataclasses.replace(
            self, wrapped=await self.wrapped.for_run(ctx), run_state=self.run_state or AgentRunState()
        )

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools that the model calls directly, and the surface tools that replace the others."""
        surface = self._active_surface
        tools = await self.wrapped.get_tools(ctx)
        direct_names, program_tools = await self._find_direct_names_and_program_tools(tools, ctx)
        if self._has_no_program_tools(program_tools):
            return tools
        require_outside_workflow()
        model_tools = await surface.build_tools(
            hide_functions_if_results_may_change(program_tools, self.wrapped, getattr(ctx, "root_capability", None))
        )
        reserved_name = next((name for name in direct_names if surface.is_reserved_name(name)), None)
        if reserved_name is not None:
            raise UserError(f"a direct tool is named {reserved_name!r}, which is the name of the {surface.title} tool")
        direct_tools = {
            name: tool for name, tool in tools.items() if name in direct_names or name in model_tools.visible_names
        }
        return {
            **direct_tools,
            **{
                surface_tool.definition.name: self._make_surface_toolset_tool(surface_tool, program_tools)
                for surface_tool in model_tools.surface_tools
            },
        }

    async def _find_direct_names_and_program_tools(
        self, tools: dict[str, ToolsetTool[AgentDepsT]], ctx: RunContext[AgentDepsT]
    ) -> tuple[Collection[str], dict[str, ToolsetTool[AgentDepsT]]]:
        """Return the names of direct tools, and the program tools; a tool may be both."""
        selection, run = AgentToolSelection(self.tools, self.keep), self._get_or_create_run_state(ctx)
        if not run.are_names_checked:
            selection.require_existing_names_unless_dynamic(self.wrapped, tools)
            run.are_names_checked = True
        direct_names, program_tools = set[str](), dict[str, ToolsetTool[AgentDepsT]]()
        for name, tool in tools.items():
            is_direct_only = is_model_only(tool.tool_def, ctx)
            availability = (
                AgentToolSelection.ONLY_DIRECTLY
                if is_direct_only
                else await selection.find_routes_async(tool.tool_def.name, tool.tool_def.metadata, ctx, tool.tool_def)
            )
            if availability.directly:
                direct_names.add(name)
            if availability.in_programs:
                program_tools[name] = tool
        return direct_names, program_tools

    def _has_no_program_tools(self, program_tools: Mapping[str, ToolsetTool[AgentDepsT]]) -> bool:
        """Return whether the surface would have no tools to call."""
        return not program_tools

    @property
    def _program_toolset(self) -> AbstractToolset[AgentDepsT]:
        """The toolset that runs program tools."""
        return self.wrapped

    def _make_surface_toolset_tool(
        self, surface_tool: SurfaceTool, program_tools: dict[str, ToolsetTool[AgentDepsT]]
    ) -> ToolsetTool[AgentDepsT]:
        # Tools outside of this toolset may run concurrently: the framework must run it exclusively.
        runs_other_tools = surface_tool.makes_calls and not self.covers_all_agent_tools
        is_sequential = runs_other_tools and any(tool.tool_def.sequential for tool in program_tools.values())
        return SurfaceToolsetTool(
            toolset=self,
            tool_def=dataclasses.replace(surface_tool.definition, sequential=is_sequential),
            max_retries=self.max_retries,
            args_validator=surface_tool.validator,
            surface_tool=surface_tool,
            surface=self._active_surface,
            program_tools=program_tools,
        )

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Run a program, resume a paused one, or call a direct tool."""
        run = self._get_or_create_run_state(ctx)
        surface = self._active_surface
        if not isinstance(tool, SurfaceToolsetTool) or tool.surface is not surface:
            async with run.scheduler.acquire(is_sequential=tool.tool_def.sequential):
                return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        # Waiting programs may have calls in flight that the framework has not counted.
        reservation = run.budget.reserve_or_raise(ctx)
        try:
            return await OuterCall(
                surface, tool.surface_tool, (self._program_toolset, tool.program_tools), ctx, run
            ).run(tool_args)
        finally:
            reservation.release()

    def _get_or_create_run_state(self, ctx: RunContext[AgentDepsT]) -> AgentRunState:
        if self.run_state is not None:
            return self.run_state
        return AgentRunState() if ctx.run_id is None else self._run_states.setdefault(ctx.run_id, AgentRunState())
