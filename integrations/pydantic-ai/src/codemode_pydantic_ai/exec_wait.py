"""exec and wait for an agent: its tools in programs that outlive one call."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet, WeakValueDictionary

from opentelemetry import trace
from pydantic import TypeAdapter
from pydantic_ai import RunContext, Tool
from pydantic_ai.exceptions import ApprovalRequired, UserError
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturn
from pydantic_ai.tools import AgentDepsT, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset

import codemode
from codemode import (
    CallContext,
    CodeModeOptions,
    ExecWaitOptions,
    ExecWaitTools,
    Interrupt,
    NamespaceRegistry,
    ToolCallContext,
    ToolResult,
    ToolSource,
    WorkerPool,
    create_exec_wait_tools,
)
from codemode.plugins import OpenedContinuation, PreparedTool, run_bounded

from .content import shown_with_content
from .conversation_state import ConversationStates
from .faces import FaceTool, ShownTools, agent_settings, code_argument
from .failures import ErrorWords
from .hidden_tools import CompiledTools
from .hiding_toolset import HidingToolset
from .nested import NestedCalls
from .outer_calls import RunState

if TYPE_CHECKING:
    from codemode import ProgramLibrary
    from codemode.stores import InterruptStore

MCP = "mcp"
_STRUCTURED, _IS_ERROR = "structuredContent", "isError"
_ANY_OBJECT: Mapping[str, Any] = {"type": "object", "additionalProperties": True}


@dataclass(kw_only=True)
class SourceTool(ToolsetTool[Any]):
    """A tool of a source, which the framework knows by its id, for another owner's may have the same name."""

    source_tool: ToolsetTool[Any]


@dataclass
class Behind(WrapperToolset[Any]):
    """Calls an agent's own tools and those of sources."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool where it is from."""
        if not isinstance(tool, SourceTool):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        inner = tool.source_tool
        return await inner.toolset.call_tool(inner.tool_def.name, tool_args, ctx, inner)


class Sources:
    """The sources beside an agent's tools: toolsets by the beginning of their tools' ids, and servers of MCP.

    Raises `ValueError` for what is no source, and no tool.
    """

    def __init__(self, given: Any) -> None:
        found = _listed(given)
        servers = [one for one in found if one.source == MCP]
        self.servers = [ToolSource(one.tools, MCP, one.owner, adapt=one.adapt or _adapted) for one in servers]
        self._toolsets = [(f"{one.source}:{one.owner}", _toolset(one.tools)) for one in found if one.source != MCP]

    async def tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools by their ids."""
        found: dict[str, ToolsetTool[Any]] = {}
        for start, toolset in self._toolsets:
            for name, tool in (await toolset.get_tools(ctx)).items():
                found[f"{start}:{name}"] = source_tool(tool)
        return found


def source_tool(tool: ToolsetTool[Any]) -> SourceTool:
    """Return a toolset's tool as one that is called there, whatever it is called by."""
    return SourceTool(
        toolset=tool.toolset,
        tool_def=tool.tool_def,
        max_retries=tool.max_retries,
        args_validator=tool.args_validator,
        args_validator_func=tool.args_validator_func,
        source_tool=tool,
    )


def _adapted(tool: codemode.Tool, tool_id: str) -> codemode.Tool:
    """Return a tool of a server whose calls are made as those of an agent's tools are."""
    ask = tool.execute
    if ask is None:
        return tool

    async def execute(value: Any, context: ToolCallContext) -> Any:
        async def run(**arguments: Any) -> Any:
            answer = await ask(arguments, context)
            # What a server sends is of any size: much of it is made plain off the loop.
            if not isinstance(answer, ToolResult):
                return answer
            return await run_bounded((answer.content, answer.structured_content), lambda: _told(answer))

        made = Tool[Any].from_schema(run, tool_id, tool.description or None, dict(_ANY_OBJECT))
        arguments = dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}
        return _untold(await context.context.call_added(made, arguments, context))

    return dataclasses.replace(tool, execute=execute)


def _told(answer: ToolResult) -> dict[str, Any]:
    """Return what a server has answered as the framework's hooks are shown it."""
    told: dict[str, Any] = {"content": [_plain(block) for block in answer.content], _IS_ERROR: answer.is_error}
    return {**told, _STRUCTURED: answer.structured_content} if answer.has_structured_content else told


def _plain(block: Any) -> Any:
    dump = getattr(block, "model_dump", None)
    return block if dump is None else dump(mode="json", by_alias=True, exclude_none=True)


def _untold(value: Any) -> Any:
    if not isinstance(value, dict) or not {"content", _IS_ERROR} <= value.keys() <= {"content", _IS_ERROR, _STRUCTURED}:
        return cast("Any", value)
    told = cast("dict[str, Any]", value)
    structured = {"structured_content": told[_STRUCTURED]} if _STRUCTURED in told else {}
    return ToolResult(told["content"], is_error=told[_IS_ERROR], **structured)


def _listed(given: Any) -> list[ToolSource]:
    if isinstance(given, AbstractToolset):
        return [ToolSource(given)]
    return ToolSource.read_all(given)


def _toolset(tools: Any) -> AbstractToolset[Any]:
    """Return the tools of a source as a toolset. Raises `ValueError` for what is no tool."""
    if isinstance(tools, AbstractToolset):
        return cast("AbstractToolset[Any]", tools)
    if isinstance(tools, Mapping):
        given = cast("Mapping[str, Any]", tools)
        return FunctionToolset[Any]([_tool(value, name) for name, value in given.items()])
    if isinstance(tools, str | bytes) or not isinstance(tools, Iterable):
        raise ValueError(f"sources must be tools, or ToolSource of tools, got {tools!r}")  # noqa: TRY004 - as every option
    return FunctionToolset[Any]([_tool(value, None) for value in cast("Iterable[Any]", tools)])


def _tool(value: Any, name: str | None) -> Tool[Any]:
    if isinstance(value, codemode.Tool):
        return _of_core(value.renamed(name) if name is not None else value)
    if isinstance(value, Tool):
        made = cast("Tool[Any]", value)
        return made if name is None or name == made.name else dataclasses.replace(made, name=name)
    if not callable(value):
        raise ValueError(f"sources: {value!r} is no tool")  # noqa: TRY004 - as above
    return Tool[Any](value, name=name)


def _of_core(tool: codemode.Tool) -> Tool[Any]:
    """Return a tool of the core as one of the framework, which validates, asks and runs as the core would."""
    made = PreparedTool.of(tool)

    async def run(ctx: RunContext[Any], /, **arguments: Any) -> Any:
        value = made.validate_input(arguments).value
        call_id = ctx.tool_call_id or ""
        given: dict[str, Any] = {"messages": ctx.messages, "context": ctx}
        context = ToolCallContext(tool_call_id=call_id, outer_tool_call_id="", **given)
        if not ctx.tool_call_approved and await _settled(made.asks_approval(value, context)):
            raise ApprovalRequired
        return made.validate_output(await _called(made, value, context))

    declared = made.input_json_schema
    schema = dict(cast("Mapping[str, Any]", declared) if isinstance(declared, dict) else _ANY_OBJECT)
    of_schema = Tool[Any].from_schema(run, tool.name, tool.description or None, schema, takes_ctx=True)
    of_schema.metadata = {**tool.metadata, "annotations": dict(tool.annotations)}
    return of_schema


async def _called(tool: PreparedTool, value: Any, context: ToolCallContext) -> Any:
    if tool.execute_kind == "sync":
        return await _settled(await asyncio.to_thread(tool.call, value, context))
    return await _settled(tool.call(value, context))


async def _settled(given: Any) -> Any:
    if inspect.isawaitable(given):
        return await given
    if isinstance(given, AsyncIterator):
        last = None
        async for one in cast("AsyncIterator[Any]", given):
            last = one
        return last
    return given


EXEC, WAIT = "exec", "wait"
_HOST, _CORE = "host", "core"
_ARGUMENTS = TypeAdapter(dict[str, Any])


def pair_options(given: Any) -> ExecWaitOptions:
    """Return the options of a pair that somebody has asked for: it is on unless they say that it is not."""
    options = ExecWaitOptions.from_config(given)
    return options if options.says("enabled") else dataclasses.replace(options, enabled=True)


@dataclass(frozen=True, kw_only=True)
class PairParts:
    """What pairs are made with, beside their tools."""

    options: ExecWaitOptions
    settings: CodeModeOptions | Mapping[str, Any] | None = None
    namespaces: NamespaceRegistry | None = None
    pool: WorkerPool | None = None
    store: InterruptStore | None = None
    tenant: str | None = None
    app: str | None = None
    library: ProgramLibrary | None = None

    def made(self, sources: list[ToolSource]) -> ExecWaitTools:
        """Return the pair over these tools."""
        settings = agent_settings(CodeModeOptions.of(self.settings), self.pool, has_clock=False)
        kept: dict[str, Any] = {"store": self.store, "tenant": self.tenant, "app": self.app}
        more: dict[str, Any] = {"settings": settings, "namespaces": self.namespaces, "pool": self.pool}
        return create_exec_wait_tools(sources, self.options, **more, **kept, library=self.library)


class PairProgram:
    """A program of exec: what its calls are made with, which is of whichever call of the model is on it last."""

    def __init__(self, pair: ExecWaitTools, scope: str, calls: NestedCalls) -> None:
        self.pair = pair
        self.scope = scope
        self.run_id: str | None = None
        self.fatal: BaseException | None = None
        self.is_taken = True
        self._in_flight: Counter[int] = Counter()
        self._calls = calls
        self._loop = asyncio.get_running_loop()

    @property
    def run_context(self) -> RunContext[Any]:
        """The context of the call of the model."""
        return self._calls.run_context

    @property
    def run(self) -> RunState:
        """What the calls of the run of the agent share that is on it last."""
        return cast("RunState", self._calls.shared)

    def take(self, calls: NestedCalls) -> None:
        """Let the calls that come be those of another call of the model. Raises what ends the run of the agent."""
        if self.fatal is not None:
            raise self.fatal
        calls.log.follow(self._calls.log)
        self.is_taken, self._calls, self._loop = True, calls, asyncio.get_running_loop()

    async def call(self, name: str, arguments: Any, context: ToolCallContext) -> Any:
        """Make one nested call."""
        calls, loop = self._calls, self._loop
        work, run = calls.call(name, arguments, context), id(calls.shared)
        self._in_flight[run] += 1
        try:
            if loop is asyncio.get_running_loop():
                return await work
            # The program lives on the loop of its exec; clients and turns are of the run that goes on with it.
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
        finally:
            self._in_flight[run] -= 1
            if calls.fatal is not None:
                self._end_run(calls.fatal)

    async def call_added(self, tool: Tool[Any], arguments: Any, context: ToolCallContext) -> Any:
        """Make one nested call of a tool that nobody knew before."""
        toolset = FunctionToolset[Any]([tool])
        found = await toolset.get_tools(self.run_context)
        self._calls.add(tool.name, source_tool(found[tool.name]))
        return await self.call(tool.name, arguments, context)

    def _end_run(self, fatal: BaseException) -> None:
        # The call that made it may be over by now: then the one that is on the program ends, or the next one.
        self.fatal = fatal
        if self._calls.fatal is None:
            self._calls.fatal = fatal
            self._calls.stop()

    async def end(self, run: RunState) -> None:
        """Abort it, if calls of this run are in flight: what they use is gone when the run of the agent has ended."""
        self.fatal = None
        if self.run_id is None:
            return
        which: dict[str, Any] = {
            "conversation_id": self.scope,
            "run_id": self.run_id,
            "reason": "the run of the agent has ended",
        }
        if self.run is run:
            await self.pair.abort(**which, only_in_flight=True)
        if self._in_flight[id(run)]:  # another run of the conversation goes on with it
            await self.pair.abort(**which)


class ExecWaitFace:
    """exec and wait over the tools of a step. ``direct`` are the names of the tools that stay beside them."""

    title = EXEC
    leaves_programs = True
    words = ErrorWords(names_tools=True)

    def __init__(self, parts: PairParts, sources: Any, direct: Iterable[Any]) -> None:
        self.options = parts.options
        self.direct = ExecWaitTools.read_direct_names(direct)
        self.sources = Sources(sources)
        given = CodeModeOptions.of(parts.settings)
        self.states = ConversationStates(EXEC, "code", "command") if given.state is None else None
        if self.states is not None:
            parts = dataclasses.replace(parts, settings=given.having(state=self.states))
        self.settings = parts.made([]).settings
        self._parts = parts
        self._compiled = CompiledTools[ExecWaitTools](self._make)
        self._pairs: WeakSet[ExecWaitTools] = WeakSet()
        self._runner: WeakValueDictionary[str, PairProgram] = WeakValueDictionary()

    def _make(self, tools: Mapping[str, codemode.Tool], _newest: ExecWaitTools | None) -> ExecWaitTools:
        grouped: dict[tuple[str, str], list[codemode.Tool]] = {}
        for key, tool in tools.items():
            source, owner = (_HOST, _CORE) if key == tool.name else key.removesuffix(f":{tool.name}").split(":", 1)
            grouped.setdefault((source, owner), []).append(tool)
        made = [ToolSource(of_one, source, owner) for (source, owner), of_one in grouped.items()]
        pair = self._parts.made([*made, *self.sources.servers])
        self._pairs.add(pair)
        return pair

    async def aclose(self) -> None:
        """End every program, or give it back to the store that keeps it."""
        await asyncio.gather(*(pair.aclose() for pair in [*self._pairs]))

    async def shown(self, hidden: Mapping[str, ToolsetTool[Any]]) -> ShownTools:
        """Return exec and wait."""
        pair = await self._compiled.of(hidden)
        return ShownTools(own=(self._own(pair, EXEC), self._own(pair, WAIT)))

    def _own(self, pair: ExecWaitTools, name: str) -> FaceTool:
        tool = pair.exec if name == EXEC else pair.wait
        definition = ToolDefinition(
            name=name,
            description=tool.description,
            parameters_json_schema=tool.input_schema,
            metadata={**tool.metadata, **(code_argument("code") if name == EXEC else {})},
        )
        new_call = partial(_PairCall, self, pair, name)
        kind = tool.metadata["toolKind"]
        return FaceTool(kind=kind, definition=definition, validator=_ARGUMENTS.validator, new_call=new_call)

    def is_taken(self, name: str) -> bool:
        """Tell whether this is the name of one of the two."""
        return name in (EXEC, WAIT)

    def outer_call(self, opened: OpenedContinuation) -> tuple[str, dict[str, Any]]:
        """Return the call of exec that paused."""
        return EXEC, {"code": opened.js}

    def program(self, run_id: Any, pair: ExecWaitTools, scope: str, calls: NestedCalls) -> PairProgram:
        """Return the program that a call of the model is on: one that was left waiting here, or another."""
        known = self._runner.get(run_id) if isinstance(run_id, str) else None
        if known is None or known.scope != scope or known.is_taken:
            return PairProgram(pair, scope, calls)
        known.take(calls)
        return known

    def leave(self, program: PairProgram, run_id: str) -> None:
        """Note that a program waits, and may be gone on with by its id."""
        program.run_id = run_id
        self._runner[run_id] = program
        program.run.waiting[run_id] = program


class _PairCall:
    """One call of exec or wait."""

    def __init__(self, face: ExecWaitFace, pair: ExecWaitTools, name: str, *, is_repeated: bool) -> None:
        if is_repeated:
            raise UserError(
                "exec and wait leave programs waiting in this process, and a durable engine may repeat a run in another"
                " one: use CodeMode there, or run the whole agent in one step."
            )
        self._face = face
        self._pair = pair
        self._name = name
        self._metadata: dict[str, str] = {}

    def text(self, arguments: dict[str, Any]) -> str:
        return str(arguments.get("code", arguments.get("command", "")))

    async def begin(self, arguments: dict[str, Any], ctx: RunContext[Any], call: CallContext) -> Any:
        run_id = arguments.get("runId", arguments.get("run_id")) if self._name == WAIT else None
        program = self._program(run_id, ctx, call.context)
        tool = program.pair.exec if self._name == EXEC else program.pair.wait
        self._mark(arguments)
        inner = CallContext(
            tool_call_id=_unique_id(ctx), messages=call.messages, context=program, conversation_id=program.scope
        )
        return await self._left(program, tool.execute(arguments, inner))

    async def go_on(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        calls: NestedCalls = call.context
        program = self._program(None, calls.run_context, calls)
        self._mark({})
        inner = CallContext(messages=call.messages, context=program, conversation_id=program.scope)
        return await self._left(program, self._pair.resume(interrupt, call=inner, resolutions=answers))

    def shown(self, answer: Any, tool_call_id: str) -> Any:  # noqa: ARG002 - as the other faces have it
        plain, objects = shown_with_content(answer)
        return ToolReturn([plain, *objects] if objects else plain, metadata=dict(self._metadata))

    def _program(self, run_id: Any, ctx: RunContext[Any], calls: NestedCalls) -> PairProgram:
        scope = ctx.conversation_id or ctx.run_id
        if not scope:
            raise UserError("exec and wait need a conversation, which only a run of an agent has.")
        return self._face.program(run_id, self._pair, scope, calls)

    def _mark(self, arguments: dict[str, Any]) -> None:
        tool = self._pair.exec if self._name == EXEC else self._pair.wait
        self._metadata = tool.metadata_of(arguments)
        trace.get_current_span().set_attributes(self._metadata)

    async def _left(self, program: PairProgram, work: Awaitable[Any]) -> Any:
        states = self._face.states
        place = nullcontext() if states is None else states.here(program.run_context, program.run.states)
        try:
            with place:
                result = await work
        finally:
            program.is_taken = False
        if not isinstance(result, dict):
            return result
        told = cast("dict[str, Any]", result)
        if told.get("status") == "waiting":
            self._face.leave(program, told["runId"])
        return told


def _unique_id(ctx: RunContext[Any]) -> str | None:
    """Return the id of a call of the model, told apart from earlier ones of this conversation: models repeat ids."""
    call_id = ctx.tool_call_id
    if not call_id:
        return None
    responses = [one for one in ctx.messages if isinstance(one, ModelResponse)][:-1]
    parts = (part for one in responses for part in one.parts if isinstance(part, ToolCallPart))
    earlier = sum(part.tool_call_id == call_id for part in parts)
    return f"{call_id}~{earlier}" if earlier else call_id


_LEFT_OUT_KINDS = ("tool-search", "capability-load")


@dataclass
class PairToolset(HidingToolset[AgentDepsT]):
    """Shows exec and wait in place of all tools but those that are named as direct ones."""

    async def _split(
        self, tools: dict[str, ToolsetTool[AgentDepsT]], ctx: RunContext[AgentDepsT]
    ) -> tuple[Collection[str], dict[str, ToolsetTool[AgentDepsT]]]:
        face = self._pair_face
        native = {name for name, tool in tools.items() if name in face.direct or tool.tool_def.kind == "output"}
        hidden = {
            name: _offered(tool)
            for name, tool in tools.items()
            if name not in native and _may_be_called(tool.tool_def, ctx)
        }
        for key, tool in (await face.sources.tools(ctx)).items():
            if key in hidden:
                raise UserError(f"two tools are called {key!r}: one of the agent, and one of its sources")
            hidden[key] = tool
        has_none = not hidden and not face.sources.servers
        if self.run is not None:
            self.run.offered = None if has_none else frozenset((EXEC, WAIT, *face.direct))
        return native, hidden

    def _has_nothing(self, hidden: Mapping[str, ToolsetTool[AgentDepsT]]) -> bool:
        return not hidden and not self._pair_face.sources.servers

    @property
    def _behind(self) -> AbstractToolset[AgentDepsT]:
        return Behind(self.wrapped)

    @property
    def _pair_face(self) -> ExecWaitFace:
        return cast("ExecWaitFace", self._made_face)


def _may_be_called(definition: ToolDefinition, ctx: RunContext[Any]) -> bool:
    """Tell whether a tool is in the catalog: what looks for tools is not, nor what belongs to no active capability."""
    if definition.tool_kind in _LEFT_OUT_KINDS:
        return False
    return definition.capability_id is None or definition.capability_id in ctx.active_capability_ids


def _offered(tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
    """Return a tool as one that can be called at once: programs have a search of their own."""
    said = tool.tool_def
    if not said.defer_loading and said.with_native is None and said.unless_native is None:
        return tool
    plain = dataclasses.replace(said, defer_loading=False, with_native=None, unless_native=None)
    return dataclasses.replace(tool, tool_def=plain)
