"""What surfaces have in common for an agent: chosen tools, and calls that pause."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

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
    ToolsetTool,
    WrapperToolset,
)

from codemode import CallContext, CodeModeOptions, ContinuationOptions, Interrupt, WorkerPool
from codemode.plugins import OpenedContinuation, ToolSelection, configure_agent_options
from codemode.stores import StoreLike

from .error_mapping import ErrorStyle

ToolSelector: TypeAlias = (
    Collection[str] | Mapping[str, Any] | Callable[[RunContext[Any], ToolDefinition], bool | Awaitable[bool]]
)
"""Names, what a tool's metadata holds, or a function of the run and a tool's definition."""
ProgramToolSelector: TypeAlias = ToolSelector | Literal["all"]
"""The same, or all tools."""


class AgentToolSelection(ToolSelection):
    """What an agent says of its tools. Raises `ValueError` for what says nothing of any."""

    def require_known_in(self, toolset: AbstractToolset[Any], there: Collection[str]) -> None:
        """Raise `UserError` for a name that fits no tool of a toolset, which has these in this step."""
        try:
            self.require_known({*there, *_list_tool_names(toolset)})
        except ValueError as error:
            if not _is_dynamic(toolset):
                raise UserError(str(error)) from None


def _list_tool_names(toolset: AbstractToolset[Any]) -> Iterator[str]:
    """Return the names of tools that a toolset has in some step, as far as it says so: it may hide them in this one."""
    if isinstance(toolset, FunctionToolset):
        yield from toolset.tools
    elif isinstance(toolset, CombinedToolset):
        for child in toolset.toolsets:
            yield from _list_tool_names(child)
    elif isinstance(toolset, PrefixedToolset):
        yield from (f"{toolset.prefix}_{name}" for name in _list_tool_names(toolset.wrapped))
    elif isinstance(toolset, RenamedToolset):
        renamed = {old: new for new, old in toolset.name_map.items()}
        yield from (renamed.get(name, name) for name in _list_tool_names(toolset.wrapped))
    elif isinstance(toolset, WrapperToolset):
        yield from _list_tool_names(toolset.wrapped)


def _is_dynamic(toolset: AbstractToolset[Any]) -> bool:
    """Tell whether a toolset may have quite other tools in another step."""
    if isinstance(toolset, CombinedToolset):
        return any(map(_is_dynamic, toolset.toolsets))
    if isinstance(toolset, WrapperToolset):
        return _is_dynamic(toolset.wrapped)
    return isinstance(toolset, DynamicToolset)


MAX_AGE_MS = 7 * 24 * 60 * 60 * 1000
MAX_RETRIES = 3


class SurfaceCall(Protocol):
    """One call of a tool of a face, by the model."""

    def program_text(self, arguments: dict[str, Any]) -> str:
        """Return the program in the model's arguments; nothing where there is none."""
        ...

    async def start(self, arguments: dict[str, Any], ctx: RunContext[Any], call: CallContext) -> Any:
        """Return the answer, or the `Interrupt` of a pause."""
        ...

    async def resume(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        """Go on with a pause. Returns as `begin` does."""
        ...

    def format_result(self, result: Any, tool_call_id: str) -> Any:
        """Return what the model is given for an answer."""
        ...


class CallFactory(Protocol):
    """Makes a call of one tool of a face."""

    def __call__(self, *, is_durable: bool) -> SurfaceCall:
        """``is_repeated``: in a run of a durable engine, whose records are its journal."""
        ...


@dataclass(frozen=True, kw_only=True)
class SurfaceTool:
    """One tool of a face, as a model meets it. ``makes_calls`` tells whether it runs tools, which may wait.

    ``kind`` tells it from other tools of its name, in the metadata of what it returns.
    """

    kind: str
    definition: ToolDefinition
    validator: Any
    new_call: CallFactory
    makes_calls: bool = True


@dataclass(frozen=True, kw_only=True)
class ModelTools:
    """What a face shows in place of tools: its own, and the names of those that stay visible beside them."""

    surface_tools: tuple[SurfaceTool, ...]
    visible_names: Collection[str] = ()


class Surface(Protocol):
    """One surface of the core, under an agent's options. ``title`` is what people call it.

    ``leaves_programs``: a program may be gone on with, and pause, in another call than the one that began it.
    """

    title: str
    continues_across_calls: bool
    settings: CodeModeOptions
    error_style: ErrorStyle

    async def build_tools(self, program_tools: Mapping[str, ToolsetTool[Any]]) -> ModelTools:
        """Return what stands for these tools. Raises `ValueError` for what one of them cannot be."""
        ...

    def is_reserved_name(self, name: str) -> bool:
        """Tell whether a tool beside those of the face cannot be called so."""
        ...

    def rebuild_outer_call(self, opened: OpenedContinuation) -> tuple[str, dict[str, Any]]:
        """Return name and arguments of the call that paused."""
        ...


def make_options(
    options: CodeModeOptions, pool: WorkerPool | None, *, has_clock: bool = True, store: StoreLike | None = None
) -> CodeModeOptions:
    """Return the options of programs that agents run. A continuation may leave the process: it is sealed."""
    agent_options = configure_agent_options(options, pool=pool, store=store, has_clock=has_clock)
    continuation: ContinuationOptions = dataclasses.replace(agent_options.continuation, seal=True)
    return agent_options.with_parts(continuation=continuation)


def reject_approval_callback(options: CodeModeOptions) -> None:
    """Raise `ValueError` for a function that decides at once: what waits is the framework's to decide."""
    if options.approval.on_approval_required is not None:
        raise ValueError(
            "approval.on_approval_required would never be called: give the agent a HandleDeferredToolCalls capability"
        )


def code_argument_metadata(name: str, language: str = "javascript") -> dict[str, str]:
    """Return the metadata of a tool that tells who shows its calls, as tracing does, where the program is."""
    return {"code_arg_name": name, "code_arg_language": language}


def check_options(keep: Any, max_retries: int, tools: Any = None) -> None:
    """Raise `ValueError` for what a toolset cannot be made with."""
    AgentToolSelection(tools, keep)
    if type(max_retries) is not int or max_retries < 0:
        raise ValueError(f"max_retries must be an integer of at least 0, got {max_retries!r}")
