"""The toolset that shows a model the few tools of a surface instead of many."""

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

from .faces import MAX_RETRIES, Chosen, Face, FaceTool, InPrograms, Kept, check_settings
from .hidden_tools import stays_native
from .nested import require_place_for_programs
from .outer_calls import OuterCall, RunState


def toolset_of(tools: Any) -> AbstractToolset[Any]:
    """Return a toolset as it is, and one of tools and functions. Raises `ValueError` for anything else."""
    if isinstance(tools, AbstractToolset):
        return cast("AbstractToolset[Any]", tools)
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise ValueError(f"tools must be a toolset, or a list of tools and functions, got {_named(tools)}")  # noqa: TRY004
    given = list(cast("Iterable[Any]", tools))
    for one in given:
        if isinstance(one, AbstractToolset):
            raise ValueError(f"{_named(one)} is no tool: give a toolset alone, several as CombinedToolset([...])")  # noqa: TRY004
        if callable(one) and not isinstance(one, Tool):
            ToolSelection.refuse_framework_tool(one)
        if not isinstance(one, Tool) and not hasattr(one, "__name__"):
            raise ValueError(f"tools must be pydantic_ai.Tool objects and functions, got {_named(one)}")
    return FunctionToolset(given)


def require_toolset(given: Any) -> None:
    """Raise `ValueError` for what is no toolset."""
    if not isinstance(given, AbstractToolset):
        raise ValueError(f"what is wrapped must be a toolset, such as FunctionToolset([...]), got {_named(given)}")  # noqa: TRY004


def _named(given: Any) -> str:
    return type(given).__name__


# Toolsets of somebody's own around it, and capabilities with hooks: then what the function says of itself is not sure.

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


@dataclass(kw_only=True)
class OwnTool(ToolsetTool[Any]):
    """A tool of a face in one step, with the tools behind it."""

    own: FaceTool
    face: Face
    hidden: dict[str, ToolsetTool[Any]]


@dataclass
class HidingToolset(WrapperToolset[AgentDepsT]):
    """Replaces the tools of another toolset with those of a face, except those that must stay native."""

    options: Any = None
    keep: Kept = ()
    max_retries: int = MAX_RETRIES
    pool: WorkerPool | None = None
    tools: InPrograms | None = None
    face: Face | None = field(default=None, repr=False)
    run: RunState | None = field(default=None, repr=False)
    is_all_of_the_agent: bool = field(default=False, repr=False)
    _runs: WeakValueDictionary[str, RunState] = field(default_factory=WeakValueDictionary[str, RunState], repr=False)

    def __post_init__(self) -> None:
        """Check the options now, not in the first run."""
        require_toolset(self.wrapped)
        check_settings(self.keep, self.max_retries, self.tools)
        if self.face is None:
            self.face = self._own_face()

    def _own_face(self) -> Face:
        raise NotImplementedError

    @property
    def _made_face(self) -> Face:
        assert self.face is not None  # noqa: S101 - made with the toolset
        return self.face

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """Return the toolset with a state of its own for this run."""
        return dataclasses.replace(self, wrapped=await self.wrapped.for_run(ctx), run=self.run or RunState())

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools that the model goes on calling directly, and those of the face for the others."""
        face = self._made_face
        tools = await self.wrapped.get_tools(ctx)
        native, hidden = await self._split(tools, ctx)
        if self._has_nothing(hidden):
            return tools
        require_place_for_programs()
        shown = await face.shown(as_declared(hidden, self.wrapped, getattr(ctx, "root_capability", None)))
        taken = next((name for name in native if face.is_taken(name)), None)
        if taken is not None:
            raise UserError(f"a tool that stays native is called {taken!r}, which is the name of the {face.title} tool")
        beside = {name: tool for name, tool in tools.items() if name in native or name in shown.visible}
        return {**beside, **{one.definition.name: self._own_tool(one, hidden) for one in shown.own}}

    async def _split(
        self, tools: dict[str, ToolsetTool[AgentDepsT]], ctx: RunContext[AgentDepsT]
    ) -> tuple[Collection[str], dict[str, ToolsetTool[AgentDepsT]]]:
        """Return the names of the tools that stay, and what is behind those of the face; a tool may be both."""
        chosen, run = Chosen(self.tools, self.keep), self._run_state(ctx)
        if not run.is_checked:
            chosen.require_known_in(self.wrapped, tools)
            run.is_checked = True
        native, hidden = set[str](), dict[str, ToolsetTool[AgentDepsT]]()
        for name, tool in tools.items():
            is_alone = stays_native(tool.tool_def, ctx)
            called = (
                Chosen.ONLY_DIRECTLY
                if is_alone
                else await chosen.find_places_async(tool.tool_def.name, tool.tool_def.metadata, ctx, tool.tool_def)
            )
            if called.directly:
                native.add(name)
            if called.in_programs:
                hidden[name] = tool
        return native, hidden

    def _has_nothing(self, hidden: Mapping[str, ToolsetTool[AgentDepsT]]) -> bool:
        """Tell whether there is nothing for which the face could stand."""
        return not hidden

    @property
    def _behind(self) -> AbstractToolset[AgentDepsT]:
        """What calls the tools behind those of the face."""
        return self.wrapped

    def _own_tool(self, own: FaceTool, hidden: dict[str, ToolsetTool[AgentDepsT]]) -> ToolsetTool[AgentDepsT]:
        # What runs beside it is not all known here: then the framework must keep it apart.
        is_alone = own.makes_calls and not self.is_all_of_the_agent
        is_sequential = is_alone and any(tool.tool_def.sequential for tool in hidden.values())
        return OwnTool(
            toolset=self,
            tool_def=dataclasses.replace(own.definition, sequential=is_sequential),
            max_retries=self.max_retries,
            args_validator=own.validator,
            own=own,
            face=self._made_face,
            hidden=hidden,
        )

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Run a program, go on with a paused one, or call a tool that stayed native."""
        run = self._run_state(ctx)
        face = self._made_face
        if not isinstance(tool, OwnTool) or tool.face is not face:
            async with run.turns.take(alone=tool.tool_def.sequential):
                return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        # Beside what the framework has counted, calls of programs that nobody is on may be in flight.
        reservation = run.budget.reserve(ctx)
        try:
            return await OuterCall(face, tool.own, (self._behind, tool.hidden), ctx, run).run(tool_args)
        finally:
            reservation.release()

    def _run_state(self, ctx: RunContext[AgentDepsT]) -> RunState:
        if self.run is not None:
            return self.run
        return RunState() if ctx.run_id is None else self._runs.setdefault(ctx.run_id, RunState())
