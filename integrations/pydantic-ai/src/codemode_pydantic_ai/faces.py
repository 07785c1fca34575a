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

from .failures import ErrorWords

Kept: TypeAlias = (
    Collection[str] | Mapping[str, Any] | Callable[[RunContext[Any], ToolDefinition], bool | Awaitable[bool]]
)
"""Names, what a tool's metadata holds, or a function of the run and a tool's definition."""
InPrograms: TypeAlias = Kept | Literal["all"]
"""The same, or all tools."""


class Chosen(ToolSelection):
    """What an agent says of its tools. Raises `ValueError` for what says nothing of any."""

    def require_known_in(self, toolset: AbstractToolset[Any], there: Collection[str]) -> None:
        """Raise `UserError` for a name that fits no tool of a toolset, which has these in this step."""
        try:
            self.require_known({*there, *_names(toolset)})
        except ValueError as error:
            if not _may_have_others(toolset):
                raise UserError(str(error)) from None


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


MAX_AGE_MS = 7 * 24 * 60 * 60 * 1000
MAX_RETRIES = 3


class FaceCall(Protocol):
    """One call of a tool of a face, by the model."""

    def text(self, arguments: dict[str, Any]) -> str:
        """Return the program in the model's arguments; nothing where there is none."""
        ...

    async def begin(self, arguments: dict[str, Any], ctx: RunContext[Any], call: CallContext) -> Any:
        """Return the answer, or the `Interrupt` of a pause."""
        ...

    async def go_on(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        """Go on with a pause. Returns as `begin` does."""
        ...

    def shown(self, answer: Any, tool_call_id: str) -> Any:
        """Return what the model is given for an answer."""
        ...


class NewCall(Protocol):
    """Makes a call of one tool of a face."""

    def __call__(self, *, is_repeated: bool) -> FaceCall:
        """``is_repeated``: in a run of a durable engine, whose records are its journal."""
        ...


@dataclass(frozen=True, kw_only=True)
class FaceTool:
    """One tool of a face, as a model meets it. ``makes_calls`` tells whether it runs tools, which may wait.

    ``kind`` tells it from other tools of its name, in the metadata of what it returns.
    """

    kind: str
    definition: ToolDefinition
    validator: Any
    new_call: NewCall
    makes_calls: bool = True


@dataclass(frozen=True, kw_only=True)
class ShownTools:
    """What a face shows in place of tools: its own, and the names of those that stay visible beside them."""

    own: tuple[FaceTool, ...]
    visible: Collection[str] = ()


class Face(Protocol):
    """One surface of the core, under an agent's options. ``title`` is what people call it.

    ``leaves_programs``: a program may be gone on with, and pause, in another call than the one that began it.
    """

    title: str
    leaves_programs: bool
    settings: CodeModeOptions
    words: ErrorWords

    async def shown(self, hidden: Mapping[str, ToolsetTool[Any]]) -> ShownTools:
        """Return what stands for these tools. Raises `ValueError` for what one of them cannot be."""
        ...

    def is_taken(self, name: str) -> bool:
        """Tell whether a tool beside those of the face cannot be called so."""
        ...

    def outer_call(self, opened: OpenedContinuation) -> tuple[str, dict[str, Any]]:
        """Return name and arguments of the call that paused."""
        ...


def agent_settings(
    given: CodeModeOptions, pool: WorkerPool | None, *, has_clock: bool = True, store: StoreLike | None = None
) -> CodeModeOptions:
    """Return the options of programs that agents run. A continuation may leave the process: it is sealed."""
    made = configure_agent_options(given, pool=pool, store=store, has_clock=has_clock)
    sealed: ContinuationOptions = dataclasses.replace(made.continuation, seal=True)
    return made.having(continuation=sealed)


def refuse_callback(given: CodeModeOptions) -> None:
    """Raise `ValueError` for a function that decides at once: what waits is the framework's to decide."""
    if given.approval.on_approval_required is not None:
        raise ValueError(
            "approval.on_approval_required would never be called: give the agent a HandleDeferredToolCalls capability"
        )


def code_argument(name: str, language: str = "javascript") -> dict[str, str]:
    """Return the metadata of a tool that tells who shows its calls, as tracing does, where the program is."""
    return {"code_arg_name": name, "code_arg_language": language}


def check_settings(keep: Any, max_retries: int, tools: Any = None) -> None:
    """Raise `ValueError` for what a toolset cannot be made with."""
    Chosen(tools, keep)
    if type(max_retries) is not int or max_retries < 0:
        raise ValueError(f"max_retries must be an integer of at least 0, got {max_retries!r}")
