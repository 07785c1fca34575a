"""codeMode surface: one tool that runs programs."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, TypeAdapter
from pydantic_ai import RunContext, Tool
from pydantic_ai.tools import AgentDepsT, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from typing_extensions import TypedDict

import codemode
from codemode import CallContext, CodeModeOptions, CodeModeTool, Interrupt, ProgramLibrary, WorkerPool
from codemode import create_code_mode_tool as create_core_tool
from codemode.plugins import Listing, OpenedContinuation, create_fork_safe_lock
from codemode.stores import StoreLike, open_store

from .content import from_media_content
from .conversation_state import ConversationStates
from .conversion import CompiledToolCache
from .error_mapping import DEFAULT_ERROR_STYLE
from .nested import NestedCalls
from .surface_toolset import SurfaceToolset, to_toolset
from .surfaces import (
    MAX_RETRIES,
    ModelTools,
    Surface,
    SurfaceTool,
    make_agent_options,
    make_code_argument_metadata,
    reject_approval_callback,
)

TOOL_NAME = CodeModeTool.name
_MAX_REMEMBERED_RUNS = 1024

OptionsLike: TypeAlias = CodeModeOptions | Mapping[str, Any] | None


class _ProgramInput(TypedDict):
    js: str


def _fill_program_field(tool_input: Any) -> Any:
    return CodeModeTool.fill_program_field(tool_input, "js")


_INPUT_ADAPTER: TypeAdapter[_ProgramInput] = TypeAdapter(Annotated[_ProgramInput, BeforeValidator(_fill_program_field)])


class CodeModeSurface:
    """The codeMode tool over the tools of a step."""

    title = TOOL_NAME
    continues_across_calls = False
    error_style = DEFAULT_ERROR_STYLE

    def __init__(
        self,
        options: OptionsLike,
        pool: WorkerPool | None,
        listing: Listing | None = None,
        store: StoreLike | None = None,
        library: ProgramLibrary | None = None,
    ) -> None:
        code_mode_options = CodeModeOptions.of(options).with_listing(listing)
        reject_approval_callback(code_mode_options)
        if code_mode_options.state is None:
            code_mode_options = code_mode_options.with_parts(state=ConversationStates(TOOL_NAME, "js"))
        self._states = code_mode_options.state if isinstance(code_mode_options.state, ConversationStates) else None
        self.settings = make_agent_options(code_mode_options, pool, store=store)
        self._pool = pool
        self._library = library
        self._compiled = CompiledToolCache[CodeModeTool](self._make_tool)

    def _make_tool(self, tools: Mapping[str, codemode.Tool], _newest: CodeModeTool | None) -> CodeModeTool:
        return create_core_tool(list(tools.values()), self.settings, pool=self._pool, library=self._library)

    async def build_tools(self, program_tools: Mapping[str, ToolsetTool[Any]]) -> ModelTools:
        """Return codeMode."""
        tool = await self._compiled.get_or_compile(program_tools)
        definition = ToolDefinition(
            name=TOOL_NAME,
            description=tool.description,
            parameters_json_schema=tool.input_schema,
            metadata=make_code_argument_metadata("js"),
        )
        new_call = partial(_CodeModeCall, tool, self._states)
        surface_tool = SurfaceTool(
            kind="code_mode", definition=definition, validator=_INPUT_ADAPTER.validator, new_call=new_call
        )
        return ModelTools(surface_tools=(surface_tool,))

    def is_reserved_name(self, name: str) -> bool:
        """Return whether this is the name of the tool."""
        return name == TOOL_NAME

    def rebuild_outer_call(self, opened: OpenedContinuation) -> tuple[str, dict[str, Any]]:
        """Return the call of codeMode that paused."""
        return TOOL_NAME, {"js": opened.js}


class _CodeModeCall:
    """One program."""

    def __init__(self, tool: CodeModeTool, states: ConversationStates | None, *, is_durable: bool) -> None:
        self._code_mode = (tool.without_journal() if is_durable else tool).for_one_call()
        # A replayed run must not read the values that it wrote before.
        self._states = None if is_durable else states

    def get_program_text(self, arguments: dict[str, Any]) -> str:
        return arguments["js"]

    async def start(self, arguments: dict[str, Any], ctx: RunContext[Any], call: CallContext) -> Any:  # noqa: ARG002
        return await self._code_mode.execute(arguments, self._add_state_backend(call))

    async def resume(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        return await self._code_mode.resume(interrupt, call=self._add_state_backend(call), resolutions=answers)

    def _add_state_backend(self, call: CallContext) -> CallContext:
        calls: NestedCalls = call.context
        if self._states is None:
            return call
        return replace(call, state=self._states.get_or_create_backend(calls.run_context, calls.shared_state.states))

    def format_result(self, result: Any, tool_call_id: str) -> Any:
        value, parts = self._code_mode.to_model_parts(result, tool_call_id=tool_call_id)
        return [value, *map(from_media_content, parts)] if parts else value


@dataclass
class CodeModeToolset(SurfaceToolset[AgentDepsT]):
    """Replaces the tools of another toolset with ``codeMode``, except those that only the model can call.

    Parameters are those of the `CodeMode` capability, which uses this toolset. Without the capability, a pause defers
    the codeMode call, and `answer` answers the nested calls in its metadata.
    """

    listing: Listing | None = None
    store: StoreLike | None = None
    library: ProgramLibrary | None = None

    def _make_surface(self) -> Surface:
        self.store = None if self.store is None else open_store(self.store)
        return CodeModeSurface(self.options, self.pool, self.listing, self.store, self.library)


class _LatestCodeModeTools:
    """The codeMode tool of the latest step of each recent run: a call uses the tools that its model saw."""

    def __init__(self) -> None:
        self._steps: OrderedDict[str, tuple[int, ToolsetTool[Any]]] = OrderedDict()
        self._lock = create_fork_safe_lock()

    def put(self, ctx: RunContext[Any], tool: ToolsetTool[Any]) -> None:
        if ctx.run_id is not None:
            with self._lock:
                self._steps[ctx.run_id] = (ctx.run_step, tool)
                self._steps.move_to_end(ctx.run_id)
                while len(self._steps) > _MAX_REMEMBERED_RUNS:
                    self._steps.popitem(last=False)

    def get(self, ctx: RunContext[Any]) -> ToolsetTool[Any] | None:
        with self._lock:
            step, tool = self._steps.get(ctx.run_id or "", (None, None))
        return tool if step == ctx.run_step else None


def create_code_mode_tool(
    tools: AbstractToolset[AgentDepsT] | Iterable[Any],
    options: OptionsLike = None,
    *,
    max_retries: int = MAX_RETRIES,
    pool: WorkerPool | None = None,
    listing: Listing | None = None,
    store: StoreLike | None = None,
    library: ProgramLibrary | None = None,
) -> Tool[AgentDepsT]:
    """Create one `pydantic_ai.Tool` from a toolset, or from tools and functions, for agents without the capability.

    Each step lists the tools that the toolset has then. Enter toolsets that need it, such as MCP toolsets, yourself.
    ``pool``, ``listing``, ``store`` and ``library`` are those of `CodeMode`. A pause defers the call of this tool; see
    `answer`. Raises `ValueError` for an invalid tool.
    """
    toolset_options: dict[str, Any] = {"max_retries": max_retries, "pool": pool, "listing": listing, "store": store}
    toolset_options["library"] = library
    toolset = CodeModeToolset(to_toolset(tools), options, **toolset_options)

    step_tools = _LatestCodeModeTools()

    async def prepare(ctx: RunContext[AgentDepsT], definition: ToolDefinition) -> ToolDefinition | None:
        step_tool = (await toolset.get_tools(ctx)).get(TOOL_NAME)
        if step_tool is None:
            return None
        step_tools.put(ctx, step_tool)
        step_definition = step_tool.tool_def
        return dataclasses.replace(
            definition, description=step_definition.description, sequential=step_definition.sequential
        )

    async def code_mode(ctx: RunContext[AgentDepsT], js: str) -> Any:
        step_tool = step_tools.get(ctx) or (await toolset.get_tools(ctx))[TOOL_NAME]
        return await toolset.call_tool(TOOL_NAME, {"js": js}, ctx, step_tool)

    schema = create_core_tool([]).input_schema
    tool = Tool[AgentDepsT].from_schema(code_mode, TOOL_NAME, "Run a program over tools.", schema, takes_ctx=True)
    tool.prepare = prepare
    tool.max_retries = max_retries
    return tool
