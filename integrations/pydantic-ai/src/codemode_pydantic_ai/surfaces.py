"""Protocols and options that the surfaces share."""

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
"""Tool names, a mapping that a tool's metadata must contain, or a predicate of run context and definition."""
ProgramToolSelector: TypeAlias = ToolSelector | Literal["all"]
"""The same, or "all"."""


class AgentToolSelection(ToolSelection):
    """Which tools programs and the model call. Raises `ValueError` for an invalid selector."""

    def require_existing_names_unless_dynamic(self, toolset: AbstractToolset[Any], there: Collection[str]) -> None:
        """Raise `UserError` for a name that matches no tool of a toolset; ``there`` are those of this step."""
        try:
            self.require_names_among({*there, *_iter_tool_names(toolset)})
        except ValueError as error:
            if not _is_dynamic(toolset):
                raise UserError(str(error)) from None


def _iter_tool_names(toolset: AbstractToolset[Any]) -> Iterator[str]:
    """Yield the names of tools that a toolset declares, including those hidden in this step."""
    if isinstance(toolset, FunctionToolset):
        yield from toolset.tools
    elif isinstance(toolset, CombinedToolset):
        for child in toolset.toolsets:
            yield from _iter_tool_names(child)
    elif isinstance(toolset, PrefixedToolset):
        yield from (f"{toolset.prefix}_{name}" for name in _iter_tool_names(toolset.wrapped))
    elif isinstance(toolset, RenamedToolset):
        renamed = {old: new for new, old in toolset.name_map.items()}
        yield from (renamed.get(name, name) for name in _iter_tool_names(toolset.wrapped))
    elif isinstance(toolset, WrapperToolset):
        yield from _iter_tool_names(toolset.wrapped)


def _is_dynamic(toolset: AbstractToolset[Any]) -> bool:
    """Return whether a toolset may have different tools in each step."""
    if isinstance(toolset, CombinedToolset):
        return any(map(_is_dynamic, toolset.toolsets))
    if isinstance(toolset, WrapperToolset):
        return _is_dynamic(toolset.wrapped)
    return isinstance(toolset, DynamicToolset)


MAX_AGE_MS = 7 * 24 * 60 * 60 * 1000
MAX_RETRIES = 3


class SurfaceCall(Protocol):
    """One call of a surface tool by the model."""

    def get_program_text(self, arguments: dict[str, Any]) -> str:
        """Return the program in the arguments, or ""."""
        ...

    async def start(self, arguments: dict[str, Any], ctx: RunContext[Any], call: CallContext) -> Any:
        """Return the result, or the `Interrupt` of a pause."""
        ...

    async def resume(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        """Resume a pause. Returns as `start` does."""
        ...

    def format_result(self, result: Any, tool_call_id: str) -> Any:
        """Return a result as the model gets it."""
        ...


class SurfaceCallFactory(Protocol):
    """Creates a `SurfaceCall`."""

    def __call__(self, *, is_durable: bool) -> SurfaceCall:
        """``is_durable``: a durable engine runs the agent, and its records replace the journal."""
        ...


@dataclass(frozen=True, kw_only=True)
class SurfaceTool:
    """One tool of a surface, as the model sees it.

    ``makes_calls``: it runs other tools, so it may pause. ``kind``: identifies the tool in the metadata of results.
    """

    kind: str
    definition: ToolDefinition
    validator: Any
    new_call: SurfaceCallFactory
    makes_calls: bool = True


@dataclass(frozen=True, kw_only=True)
class ModelTools:
    """The tools that a model gets: those of the surface, and the names of program tools that stay visible."""

    surface_tools: tuple[SurfaceTool, ...]
    visible_names: Collection[str] = ()


class Surface(Protocol):
    """One surface of the core with an agent's options. ``title``: its name in messages.

    ``continues_across_calls``: a later outer call may continue a program, and pause in it.
    """

    title: str
    continues_across_calls: bool
    settings: CodeModeOptions
    error_style: ErrorStyle

    async def build_tools(self, program_tools: Mapping[str, ToolsetTool[Any]]) -> ModelTools:
        """Return the model's tools for a step. Raises `ValueError` for a tool that the surface cannot use."""
        ...

    def is_reserved_name(self, name: str) -> bool:
        """Return whether other tools must not have this name."""
        ...

    def rebuild_outer_call(self, opened: OpenedContinuation) -> tuple[str, dict[str, Any]]:
        """Return name and arguments of the outer call that paused."""
        ...


def make_agent_options(
    options: CodeModeOptions, pool: WorkerPool | None, *, has_clock: bool = True, store: StoreLike | None = None
) -> CodeModeOptions:
    """Return options with an agent's defaults. Continuations may leave the process, so they are sealed."""
    agent_options = configure_agent_options(options, pool=pool, store=store, has_clock=has_clock)
    continuation: ContinuationOptions = dataclasses.replace(agent_options.continuation, seal=True)
    return agent_options.with_parts(continuation=continuation)


def reject_approval_callback(options: CodeModeOptions) -> None:
    """Raise `ValueError` for an approval callback: the framework decides about pending calls."""
    if options.approval.on_approval_required is not None:
        raise ValueError(
            "approval.on_approval_required would never be called: give the agent a HandleDeferredToolCalls capability"
        )


def make_code_argument_metadata(name: str, language: str = "javascript") -> dict[str, str]:
    """Return tool metadata that names the argument with the program, for tracing and UIs."""
    return {"code_arg_name": name, "code_arg_language": language}


def require_valid_selectors_and_retries(keep: Any, max_retries: int, tools: Any = None) -> None:
    """Raise `ValueError` for invalid selectors or retries."""
    AgentToolSelection(tools, keep)
    if type(max_retries) is not int or max_retries < 0:
        raise ValueError(f"max_retries must be an integer of at least 0, got {max_retries!r}")
