"""codeMode as a face: one tool that runs programs. Answers no approvals and rewrites no history."""

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
from codemode.plugins import Listing, OpenedContinuation, forkable_lock
from codemode.stores import StoreLike, open_store

from .content import object_of
from .conversation_state import ConversationStates
from .faces import MAX_RETRIES, Face, FaceTool, ShownTools, agent_settings, code_argument, refuse_callback
from .failures import OWN_WORDS
from .hidden_tools import CompiledTools
from .hiding_toolset import HidingToolset, toolset_of
from .nested import NestedCalls

TOOL_NAME = CodeModeTool.name
_MAX_SHOWN_RUNS = 1024

Options: TypeAlias = CodeModeOptions | Mapping[str, Any] | None


class _Input(TypedDict):
    js: str


def _named(given: Any) -> Any:
    return CodeModeTool.fill_program_field(given, "js")


_INPUT: TypeAdapter[_Input] = TypeAdapter(Annotated[_Input, BeforeValidator(_named)])


class CodeModeFace:
    """The codeMode tool over the tools of a step."""

    title = TOOL_NAME
    leaves_programs = False
    words = OWN_WORDS

    def __init__(
        self,
        options: Options,
        pool: WorkerPool | None,
        listing: Listing | None = None,
        store: StoreLike | None = None,
        library: ProgramLibrary | None = None,
    ) -> None:
        given = CodeModeOptions.of(options).with_listing(listing)
        refuse_callback(given)
        if given.state is None:
            given = given.having(state=ConversationStates(TOOL_NAME, "js"))
        self._states = given.state if isinstance(given.state, ConversationStates) else None
        self.settings = agent_settings(given, pool, store=store)
        self._pool = pool
        self._library = library
        self._compiled = CompiledTools[CodeModeTool](self._make)

    def _make(self, tools: Mapping[str, codemode.Tool], _newest: CodeModeTool | None) -> CodeModeTool:
        return create_core_tool(list(tools.values()), self.settings, pool=self._pool, library=self._library)

    async def shown(self, hidden: Mapping[str, ToolsetTool[Any]]) -> ShownTools:
        """Return codeMode."""
        made = await self._compiled.of(hidden)
        definition = ToolDefinition(
            name=TOOL_NAME,
            description=made.description,
            parameters_json_schema=made.input_schema,
            metadata=code_argument("js"),
        )
        new_call = partial(_ProgramCall, made, self._states)
        own = FaceTool(kind="code_mode", definition=definition, validator=_INPUT.validator, new_call=new_call)
        return ShownTools(own=(own,))

    def is_taken(self, name: str) -> bool:
        """Tell whether this is the name of the tool."""
        return name == TOOL_NAME

    def outer_call(self, opened: OpenedContinuation) -> tuple[str, dict[str, Any]]:
        """Return the call of codeMode that paused."""
        return TOOL_NAME, {"js": opened.js}


class _ProgramCall:
    """One program."""

    def __init__(self, made: CodeModeTool, states: ConversationStates | None, *, is_repeated: bool) -> None:
        self._code_mode = (made.without_journal() if is_repeated else made).for_one_call()
        # What a durable engine runs again must not find what it has left itself.
        self._states = None if is_repeated else states

    def text(self, arguments: dict[str, Any]) -> str:
        return arguments["js"]

    async def begin(self, arguments: dict[str, Any], ctx: RunContext[Any], call: CallContext) -> Any:  # noqa: ARG002
        return await self._code_mode.execute(arguments, self._with_state(call))

    async def go_on(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        return await self._code_mode.resume(interrupt, call=self._with_state(call), resolutions=answers)

    def _with_state(self, call: CallContext) -> CallContext:
        calls: NestedCalls = call.context
        if self._states is None:
            return call
        return replace(call, state=self._states.of(calls.run_context, calls.shared.states))

    def shown(self, answer: Any, tool_call_id: str) -> Any:
        value, parts = self._code_mode.to_model_parts(answer, tool_call_id=tool_call_id)
        return [value, *map(object_of, parts)] if parts else value


@dataclass
class CodeModeToolset(HidingToolset[AgentDepsT]):
    """Replaces the tools of another toolset with ``codeMode``, except those that must stay native.

    All parameters are those of the `CodeMode` capability, which uses it; without that, a pause defers the codeMode call
    itself, and `answer` answers the inner calls in its metadata.
    """

    listing: Listing | None = None
    store: StoreLike | None = None
    library: ProgramLibrary | None = None

    def _own_face(self) -> Face:
        self.store = None if self.store is None else open_store(self.store)
        return CodeModeFace(self.options, self.pool, self.listing, self.store, self.library)


class _ShownSteps:
    """What each step of the last runs showed its model: that can be called, and nothing else."""

    def __init__(self) -> None:
        self._steps: OrderedDict[str, tuple[int, ToolsetTool[Any]]] = OrderedDict()
        self._lock = forkable_lock()

    def put(self, ctx: RunContext[Any], made: ToolsetTool[Any]) -> None:
        if ctx.run_id is not None:
            with self._lock:
                self._steps[ctx.run_id] = (ctx.run_step, made)
                self._steps.move_to_end(ctx.run_id)
                while len(self._steps) > _MAX_SHOWN_RUNS:
                    self._steps.popitem(last=False)

    def get(self, ctx: RunContext[Any]) -> ToolsetTool[Any] | None:
        with self._lock:
            step, made = self._steps.get(ctx.run_id or "", (None, None))
        return made if step == ctx.run_step else None


def create_code_mode_tool(
    tools: AbstractToolset[AgentDepsT] | Iterable[Any],
    options: Options = None,
    *,
    max_retries: int = MAX_RETRIES,
    pool: WorkerPool | None = None,
    listing: Listing | None = None,
    store: StoreLike | None = None,
    library: ProgramLibrary | None = None,
) -> Tool[AgentDepsT]:
    """Make one `pydantic_ai.Tool` of a toolset or of tools and functions, for agents without the capability.

    The model is shown the tools that the toolset has at each step. A toolset that must be entered, as some MCP ones
    must, is for you to enter. ``pool``: the `WorkerPool` that runs the programs. ``listing``: what the model is told of
    the tools. ``store`` and ``library`` are those of `CodeMode`. A pause defers the call of this tool; see `answer`.
    Raises `ValueError` for what is no tool.
    """
    more: dict[str, Any] = {"max_retries": max_retries, "pool": pool, "listing": listing, "store": store}
    more["library"] = library
    toolset = CodeModeToolset(toolset_of(tools), options, **more)

    shown = _ShownSteps()

    async def prepare(ctx: RunContext[AgentDepsT], definition: ToolDefinition) -> ToolDefinition | None:
        made = (await toolset.get_tools(ctx)).get(TOOL_NAME)
        if made is None:
            return None
        shown.put(ctx, made)
        said = made.tool_def
        return dataclasses.replace(definition, description=said.description, sequential=said.sequential)

    async def code_mode(ctx: RunContext[AgentDepsT], js: str) -> Any:
        made = shown.get(ctx) or (await toolset.get_tools(ctx))[TOOL_NAME]
        return await toolset.call_tool(TOOL_NAME, {"js": js}, ctx, made)

    schema = create_core_tool([]).input_schema
    tool = Tool[AgentDepsT].from_schema(code_mode, TOOL_NAME, "Run a program over tools.", schema, takes_ctx=True)
    tool.prepare = prepare
    tool.max_retries = max_retries
    return tool
