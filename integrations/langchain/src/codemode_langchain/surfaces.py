"""Base classes of the surfaces and their tools, and a cache of surfaces."""

from __future__ import annotations

import inspect
import re
import secrets
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, tool
from pydantic import PrivateAttr

from codemode import CodeModeOptions, CodeModeTool, CodeModeToolError, ToolCallContext, WorkerPool
from codemode import Tool as ProgramTool
from codemode.plugins import (
    Listing,
    ToolSelection,
    configure_agent_options,
    create_fork_safe_lock,
    select_tools_with_callable_names,
)
from codemode.stores import StoreLike

from .approvals import ApprovalPolicy, DirectToolCaller, ToolCaller
from .arguments import ValidatedArguments, find_call_id_field_names
from .content import make_message_content
from .conversion import ASYNC_ONLY_MESSAGE, FrameworkTool, convert_tool, get_annotations, is_async_only
from .graph_state import make_outer_result, write_earlier_and_return_last_value
from .langgraph_internals import is_in_node
from .node_tasks import compute_digest, make_call_id
from .questions import OuterCall
from .segments import ProgramOutcome, SegmentRunner

MAX_AGE_MS = 30 * 24 * 3_600_000
_current_tool_call_id: ContextVar[str | None] = ContextVar("tool_call_id", default=None)


@runtime_checkable
class Toolkit(Protocol):
    """A group of tools, such as LangChain's ``BaseToolkit``."""

    def get_tools(self) -> list[BaseTool]:
        """Return the tools."""
        ...


class Surface:
    """A set of tools converted for a surface, for sync and async callers.

    ``previous``: an earlier surface with the same rules, whose conversions are reused.
    """

    conversions: dict[int, tuple[FrameworkTool, FrameworkTool]]  # by id(tool); the surface keeps the tools alive

    def __init__(self, tools: Iterable[BaseTool], approvals: ApprovalPolicy, previous: Surface | None = None) -> None:
        self.all_tools = list(tools)  # including duplicates by name: cache keys use their ids
        self.tools = {
            langchain_tool.name: langchain_tool
            for langchain_tool in self.all_tools
            if self._is_callable_name(langchain_tool.name)
        }
        self.approvals = approvals
        cached_conversions = {} if previous is None else previous.conversions
        self.conversions = {
            id(langchain_tool): _find_reusable_conversion(langchain_tool, cached_conversions)
            or self._convert_tool(langchain_tool)
            for langchain_tool in self.tools.values()
        }
        self._sync_tools = [langchain_tool for langchain_tool, _ in self.conversions.values()]
        self._async_tools = [langchain_tool for _, langchain_tool in self.conversions.values()]

    @property
    @abstractmethod
    def core(self) -> Any:
        """The core's tool, with the options of its programs."""

    @abstractmethod
    def build_tools(self) -> Sequence[SurfaceTool]:
        """Return the surface tools, as the model gets them."""

    def list_visible_names(self) -> frozenset[str]:
        """Return the names of program tools that the model gets too."""
        return frozenset()

    def _is_callable_name(self, name: str) -> bool:
        return ProgramTool.is_callable_name(name)

    def _convert_tool(self, langchain_tool: BaseTool) -> tuple[FrameworkTool, FrameworkTool]:
        def run(arguments: ValidatedArguments, context: ToolCallContext) -> Any:
            return context.context.run(langchain_tool, arguments, context)

        async def arun(arguments: ValidatedArguments, context: ToolCallContext) -> Any:
            return await context.context.arun(langchain_tool, arguments, context)

        blocking = convert_tool(
            langchain_tool,
            run,
            self.approvals.make_approval_check(langchain_tool.name, partial(get_annotations, langchain_tool)),
        )
        return blocking, blocking.with_execute(arun)


class SurfaceTool(BaseTool):
    """A tool that replaces other tools for the model, and runs them."""

    _surface: Any = PrivateAttr()
    _caller: ToolCaller = PrivateAttr()

    def __init__(self, surface: Surface, caller: ToolCaller | None = None, **fields: Any) -> None:
        super().__init__(**fields)
        self._surface = surface
        self._caller = caller if caller is not None else DirectToolCaller()

    @property
    def core(self) -> Any:
        """The core's tool."""
        return self._surface.core

    def is_same_tool(self, other: SurfaceTool) -> bool:
        """Return whether another tool has the same surface and name; true for copies of a tool."""
        return self._surface is other._surface and self.name == other.name

    def run(self, tool_input: Any, *args: Any, tool_call_id: str | None = None, **settings: Any) -> Any:
        """Run the tool; the ids of nested calls derive from ``tool_call_id``."""
        token, tool_input = _current_tool_call_id.set(tool_call_id), self._fill_program_field(tool_input)
        try:
            return super().run(tool_input, *args, tool_call_id=tool_call_id, **settings)
        finally:
            _current_tool_call_id.reset(token)

    async def arun(self, tool_input: Any, *args: Any, tool_call_id: str | None = None, **settings: Any) -> Any:
        """Run the tool; the ids of nested calls derive from ``tool_call_id``."""
        token, tool_input = _current_tool_call_id.set(tool_call_id), self._fill_program_field(tool_input)
        try:
            return await super().arun(tool_input, *args, tool_call_id=tool_call_id, **settings)
        finally:
            _current_tool_call_id.reset(token)

    def _fill_program_field(self, tool_input: Any) -> Any:
        return CodeModeTool.fill_program_field(tool_input, self.args)

    def _run_outer_call(self, call: OuterCall) -> Any:
        self._reject_async_only_tools(call)
        segments = self._make_runner(call)
        return self._outcome_to_result_or_raise(segments.run(), segments.config)

    def _reject_async_only_tools(self, call: OuterCall) -> None:
        """Raise `CodeModeToolError` for a program that calls an async-only tool in a blocking call."""
        program = call.program or str(call.arguments.get("tool", ""))
        tools = (
            async_tool
            for async_tool in self._surface.tools.values()
            if is_async_only(async_tool) and _calls_tool(program, async_tool.name)
        )
        if (async_only_tool := next(tools, None)) is not None and not self._caller.may_be_intercepted():
            raise CodeModeToolError(
                ASYNC_ONLY_MESSAGE.format(async_only_tool.name), details={"tool_name": async_only_tool.name}
            )

    async def _arun_outer_call(self, call: OuterCall) -> Any:
        segments = self._make_runner(call)
        return self._outcome_to_result_or_raise(await segments.arun(), segments.config)

    def _make_runner(self, call: OuterCall) -> SegmentRunner:
        config, tool_call_id = ensure_config(), _current_tool_call_id.get()
        if not tool_call_id:
            generated_id = f"code-mode-{secrets.token_hex(8)}"
            tool_call_id = (
                make_call_id(config, compute_digest([call.name, call.arguments]))
                if is_in_node(config)
                else generated_id
            )
        return SegmentRunner(
            call=call,
            approvals=self._surface.approvals,
            tool_call_id=tool_call_id,
            caller=self._caller,
            config=config,
        )

    def _outcome_to_result_or_raise(self, outcome: ProgramOutcome, config: RunnableConfig) -> Any:
        """Return a message, or a command if nested calls update state; the plain value outside a tool call."""
        tool_call_id = _current_tool_call_id.get()
        if tool_call_id is None:
            if outcome.error is not None:
                raise outcome.error
            return outcome.value
        failure = outcome.failure
        message = ToolMessage(
            make_message_content(outcome.text, outcome.content) if failure is None else str(failure["text"]),
            artifact={"calls": list(outcome.artifacts)} if outcome.artifacts else None,
            name=self.name,
            tool_call_id=tool_call_id,
            status="success" if failure is None else "error",
        )
        return make_outer_result(message, outcome.commands, partial(write_earlier_and_return_last_value, config))


def _calls_tool(program: str, name: str) -> bool:
    """Return whether a program calls a tool by its literal name, in the syntax of any surface."""
    names_pattern = "|".join(map(re.escape, {name, name.replace("-", "_")}))
    patterns = (
        rf"(?<![\w$.])tools\s*(?:\?\.|\.|\[\s*[\"'`])\s*(?:{names_pattern})(?![\w$])",
        rf"(?:callTool|tools\.call)\s*\(\s*[\"'`](?:[^\"'`]*:)?(?:{names_pattern})[\"'`]",
        rf"\{{[^{{}}]*(?<![\w$])(?:{names_pattern})(?![\w$])[^{{}}]*\}}\s*=\s*tools(?![\w$.])",
        *([rf"(?<![\w$.]){re.escape(name)}\s*\("] if "." in name else ()),
    )
    return program == name or any(re.search(pattern, program) for pattern in patterns)


def _find_reusable_conversion(
    langchain_tool: BaseTool, cached_conversions: Mapping[int, tuple[FrameworkTool, FrameworkTool]]
) -> tuple[FrameworkTool, FrameworkTool] | None:
    """Return the conversion of a tool; None if it is new or its hints changed."""
    conversion = cached_conversions.get(id(langchain_tool))
    return (
        conversion
        if conversion is not None and (conversion[0].annotations or {}) == get_annotations(langchain_tool)
        else None
    )


def select_non_provider_tools(tools: Iterable[Any]) -> list[BaseTool]:
    """Return an agent's tools without those that the provider runs."""
    converted = (tool(item) if inspect.isroutine(item) else item for item in tools)
    return [item for item in converted if isinstance(item, BaseTool)]


def convert_and_select_program_tools(
    tools: Iterable[Any] | Toolkit,
    approvals: ApprovalPolicy | None,
    middleware: str,
    check: Callable[[str], str] | None = None,
) -> list[BaseTool]:
    """Return LangChain tools, or a toolkit's, without those that programs cannot call; ``check`` validates names.

    Raises `ValueError` for an invalid tool, a rule that names an unknown tool, duplicate names, and a tool that needs
    injected state; the message then recommends ``middleware``.
    """
    collected = [_to_tool(langchain_tool) for langchain_tool in _list_tools(tools)]
    for langchain_tool in collected:
        _reject_injected_arguments(langchain_tool, middleware)
    if approvals is not None:
        approvals.require_rule_names_exist([langchain_tool.name for langchain_tool in collected])
    return (
        select_tools_with_callable_names(collected)
        if check is None
        else select_tools_with_callable_names(collected, check)
    )


def make_agent_options(
    options: CodeModeOptions | Mapping[str, Any] | None,
    *,
    pool: WorkerPool | None,
    has_clock: bool = True,
    listing: Listing | None = None,
    store: StoreLike | None = None,
) -> CodeModeOptions:
    """Return options with an agent's defaults: approvals pause the graph, unless a callback decides immediately.

    Without ``pool``, only the program's own time counts (if ``has_clock``), and programs wait for a worker. Raises
    `ValueError` for invalid options and for a closed pool.
    """
    agent_defaults: dict[str, Any] = {
        "listing": listing,
        "store": store,
        "has_clock": has_clock,
        "max_age_ms": MAX_AGE_MS,
    }
    return configure_agent_options(options, pool=pool, **agent_defaults)


def _list_tools(tools: Any) -> Iterable[Any]:
    if isinstance(tools, Toolkit):
        return tools.get_tools()
    # A single tool is a pydantic model, which iterates over its fields: reject it.
    if isinstance(tools, BaseTool | Mapping | str | bytes) or not isinstance(tools, Iterable):
        raise ValueError(f"tools must be a list of tools, or a toolkit, got {type(cast('Any', tools)).__name__}")  # noqa: TRY004
    return cast("Iterable[Any]", tools)


def _to_tool(value: Any) -> BaseTool:
    if isinstance(value, BaseTool):
        return value
    if isinstance(value, type) or not callable(value):
        raise ValueError(f"tools must be LangChain tools and functions, got {type(value).__name__}")  # noqa: TRY004
    ToolSelection.refuse_framework_tool(value)
    try:
        return tool(value)
    except ValueError as error:  # LangChain does not name the function without docstring
        raise ValueError(f"{getattr(value, '__name__', value)!r} cannot be a tool: {error}") from error


def _reject_injected_arguments(langchain_tool: BaseTool, middleware: str) -> None:
    fields: Mapping[str, Any] = getattr(langchain_tool.args_schema, "model_fields", {})
    visible_fields: Mapping[str, Any] = getattr(cast("Any", langchain_tool.tool_call_schema), "model_fields", fields)
    injected_names = (
        {name for name, field in fields.items() if field.is_required()}
        - set(visible_fields)
        - find_call_id_field_names(fields)
    )
    if injected_names:
        raise ValueError(
            f"tool {langchain_tool.name!r} takes {', '.join(sorted(injected_names))} from a graph:"
            f" use {middleware} in an agent"
        )


_MAX_SURFACES = 32
_MAX_TOOLS = 8192  # in total, about 12 kB each: servers listed for each request may have any number
Key = tuple[Any, ...]


class SurfaceCache:
    """Caches surfaces; creates one at a time, without blocking lookups.

    Creation takes a second for a thousand tools: call `get_or_create` in a thread.
    """

    def __init__(self, make: Callable[[Sequence[BaseTool]], Surface]) -> None:
        self._make = make
        self._surfaces: OrderedDict[Key, Surface] = OrderedDict()
        self._lock = create_fork_safe_lock()
        self._make_lock = create_fork_safe_lock()

    def __contains__(self, key: Key) -> bool:
        return key in self._surfaces

    def get_or_create(self, key: Key, tools: Sequence[BaseTool]) -> Surface:
        """Return the surface for a key, which must change with everything that the surface depends on."""
        surface = self._look_up(key)
        if surface is not None:
            return surface
        with self._make_lock:
            while (surface := self._look_up(key)) is None:  # `clear` may have dropped it
                surfaces, new_surface = self._surfaces, self._make(tools)
                with self._lock:
                    surfaces[key] = new_surface
                    while len(surfaces) > 1 and (len(surfaces) > _MAX_SURFACES or _count_tools(surfaces) > _MAX_TOOLS):
                        surfaces.popitem(last=False)
            return surface

    def list_surfaces(self) -> list[Surface]:
        """Return the cached surfaces."""
        with self._lock:
            return list(self._surfaces.values())

    def clear(self) -> None:
        """Drop all surfaces."""
        with self._lock:
            self._surfaces = OrderedDict()

    def _look_up(self, key: Key) -> Surface | None:
        with self._lock:
            surface = self._surfaces.get(key)
            if surface is not None:
                self._surfaces.move_to_end(key)
            return surface


def _count_tools(surfaces: Mapping[Key, Surface]) -> int:
    return sum(len(surface.all_tools) for surface in surfaces.values())
