"""exec and wait surface: programs that may continue after the call that started them."""

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
from codemode.plugins import OpenedContinuation, PreparedTool, run_off_loop_if_large

from .content import split_media
from .conversation_state import ConversationStates
from .conversion import CompiledToolCache
from .error_mapping import ErrorStyle
from .nested import NestedCalls
from .outer_call import AgentRunState
from .surface_toolset import SurfaceToolset
from .surfaces import ModelTools, SurfaceTool, make_agent_options, make_code_argument_metadata

if TYPE_CHECKING:
    from codemode import ProgramLibrary
    from codemode.stores import InterruptStore

MCP_SOURCE = "mcp"
_STRUCTURED_CONTENT_KEY, _IS_ERROR_KEY = "structuredContent", "isError"
_ANY_OBJECT: Mapping[str, Any] = {"type": "object", "additionalProperties": True}


@dataclass(kw_only=True)
class SourceTool(ToolsetTool[Any]):
    """A tool of a source, named by its id: tools of different owners may have the same name."""

    source_tool: ToolsetTool[Any]


@dataclass
class SourceRoutingToolset(WrapperToolset[Any]):
    """Routes calls to the agent's tools or to the toolsets of sources."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool in its own toolset."""
        if not isinstance(tool, SourceTool):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        inner = tool.source_tool
        return await inner.toolset.call_tool(inner.tool_def.name, tool_args, ctx, inner)


class ToolSources:
    """The sources in addition to an agent's tools: toolsets by id prefix, and MCP servers.

    Raises `ValueError` for an invalid source or tool.
    """

    def __init__(self, sources: Any) -> None:
        tool_sources = _to_tool_sources(sources)
        servers = [source for source in tool_sources if source.source == MCP_SOURCE]
        self.servers = [
            ToolSource(source.tools, MCP_SOURCE, source.owner, adapt=source.adapt or _route_server_tool_through_agent)
            for source in servers
        ]
        self._toolsets = [
            (f"{source.source}:{source.owner}", _to_toolset(source.tools))
            for source in tool_sources
            if source.source != MCP_SOURCE
        ]

    async def get_toolset_tools_by_id(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools by id."""
        tools: dict[str, ToolsetTool[Any]] = {}
        for id_prefix, toolset in self._toolsets:
            for name, tool in (await toolset.get_tools(ctx)).items():
                tools[f"{id_prefix}:{name}"] = make_source_tool(tool)
        return tools


def make_source_tool(tool: ToolsetTool[Any]) -> SourceTool:
    """Wrap a toolset's tool, so that it is called in its toolset under its own name."""
    return SourceTool(
        toolset=tool.toolset,
        tool_def=tool.tool_def,
        max_retries=tool.max_retries,
        args_validator=tool.args_validator,
        args_validator_func=tool.args_validator_func,
        source_tool=tool,
    )


def _route_server_tool_through_agent(tool: codemode.Tool, tool_id: str) -> codemode.Tool:
    """Return a server's tool whose calls run through the agent's hooks."""
    call_server = tool.execute
    if call_server is None:
        return tool

    async def execute(value: Any, context: ToolCallContext) -> Any:
        async def run(**arguments: Any) -> Any:
            answer = await call_server(arguments, context)
            # A server's result may be large: convert it off the event loop.
            if not isinstance(answer, ToolResult):
                return answer
            return await run_off_loop_if_large(
                (answer.content, answer.structured_content), lambda: _tool_result_to_dict(answer)
            )

        called_tool = Tool[Any].from_schema(run, tool_id, tool.description or None, dict(_ANY_OBJECT))
        arguments = dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}
        return _dict_to_tool_result(await context.context.add_and_call_tool(called_tool, arguments, context))

    return dataclasses.replace(tool, execute=execute)


def _tool_result_to_dict(answer: ToolResult) -> dict[str, Any]:
    """Return a server's result as the dict that hooks get."""
    fields: dict[str, Any] = {
        "content": [_block_to_dict(block) for block in answer.content],
        _IS_ERROR_KEY: answer.is_error,
    }
    return {**fields, _STRUCTURED_CONTENT_KEY: answer.structured_content} if answer.has_structured_content else fields


def _block_to_dict(block: Any) -> Any:
    dump = getattr(block, "model_dump", None)
    return block if dump is None else dump(mode="json", by_alias=True, exclude_none=True)


def _dict_to_tool_result(value: Any) -> Any:
    if not isinstance(value, dict) or not {"content", _IS_ERROR_KEY} <= value.keys() <= {
        "content",
        _IS_ERROR_KEY,
        _STRUCTURED_CONTENT_KEY,
    }:
        return cast("Any", value)
    fields = cast("dict[str, Any]", value)
    structured_field = (
        {"structured_content": fields[_STRUCTURED_CONTENT_KEY]} if _STRUCTURED_CONTENT_KEY in fields else {}
    )
    return ToolResult(fields["content"], is_error=fields[_IS_ERROR_KEY], **structured_field)


def _to_tool_sources(sources: Any) -> list[ToolSource]:
    if isinstance(sources, AbstractToolset):
        return [ToolSource(sources)]
    return ToolSource.parse_sources(sources)


def _to_toolset(tools: Any) -> AbstractToolset[Any]:
    """Return the tools of a source as a toolset. Raises `ValueError` for an invalid tool."""
    if isinstance(tools, AbstractToolset):
        return cast("AbstractToolset[Any]", tools)
    if isinstance(tools, Mapping):
        tools_by_name = cast("Mapping[str, Any]", tools)
        return FunctionToolset[Any]([_to_tool(value, name) for name, value in tools_by_name.items()])
    if isinstance(tools, str | bytes) or not isinstance(tools, Iterable):
        raise ValueError(f"sources must be tools, or ToolSource of tools, got {tools!r}")  # noqa: TRY004 - as every option
    return FunctionToolset[Any]([_to_tool(value, None) for value in cast("Iterable[Any]", tools)])


def _to_tool(value: Any, name: str | None) -> Tool[Any]:
    if isinstance(value, codemode.Tool):
        return _convert_core_tool(value.with_name(name) if name is not None else value)
    if isinstance(value, Tool):
        framework_tool = cast("Tool[Any]", value)
        return (
            framework_tool
            if name is None or name == framework_tool.name
            else dataclasses.replace(framework_tool, name=name)
        )
    if not callable(value):
        raise ValueError(f"sources: {value!r} is no tool")  # noqa: TRY004 - as above
    return Tool[Any](value, name=name)


def _convert_core_tool(tool: codemode.Tool) -> Tool[Any]:
    """Convert a core tool to one of the framework with the same validation, approval and execution."""
    prepared = PreparedTool.from_tool(tool)

    async def run(ctx: RunContext[Any], /, **arguments: Any) -> Any:
        value = prepared.validate_input(arguments).value
        call_id = ctx.tool_call_id or ""
        call_fields: dict[str, Any] = {"messages": ctx.messages, "context": ctx}
        context = ToolCallContext(tool_call_id=call_id, outer_tool_call_id="", **call_fields)
        if not ctx.tool_call_approved and await _await_or_drain_result(
            prepared.evaluate_needs_approval(value, context)
        ):
            raise ApprovalRequired
        return prepared.validate_output(await _run_core_tool(prepared, value, context))

    input_schema = prepared.input_json_schema
    schema = dict(cast("Mapping[str, Any]", input_schema) if isinstance(input_schema, dict) else _ANY_OBJECT)
    framework_tool = Tool[Any].from_schema(run, tool.name, tool.description or None, schema, takes_ctx=True)
    framework_tool.metadata = {**tool.metadata, "annotations": dict(tool.annotations)}
    return framework_tool


async def _run_core_tool(tool: PreparedTool, value: Any, context: ToolCallContext) -> Any:
    if tool.execute_kind == "sync":
        return await _await_or_drain_result(await asyncio.to_thread(tool.call, value, context))
    return await _await_or_drain_result(tool.call(value, context))


async def _await_or_drain_result(value: Any) -> Any:
    if inspect.isawaitable(value):
        return await value
    if isinstance(value, AsyncIterator):
        last = None
        async for item in cast("AsyncIterator[Any]", value):
            last = item
        return last
    return value


EXEC_NAME, WAIT_NAME = "exec", "wait"
_HOST_SOURCE, _CORE_OWNER = "host", "core"
_ARGUMENTS_ADAPTER = TypeAdapter(dict[str, Any])


def make_exec_wait_options(options: Any) -> ExecWaitOptions:
    """Return the options; exec and wait are enabled unless the options disable them."""
    options = ExecWaitOptions.from_config(options)
    return options if options.is_set_explicitly("enabled") else dataclasses.replace(options, enabled=True)


@dataclass(frozen=True, kw_only=True)
class ExecWaitConfig:
    """Settings of exec and wait, except their tools."""

    options: ExecWaitOptions
    settings: CodeModeOptions | Mapping[str, Any] | None = None
    namespaces: NamespaceRegistry | None = None
    pool: WorkerPool | None = None
    store: InterruptStore | None = None
    tenant: str | None = None
    app: str | None = None
    library: ProgramLibrary | None = None

    def create_tools(self, sources: list[ToolSource]) -> ExecWaitTools:
        """Create exec and wait over these tools."""
        settings = make_agent_options(CodeModeOptions.of(self.settings), self.pool, has_clock=False)
        store_fields: dict[str, Any] = {"store": self.store, "tenant": self.tenant, "app": self.app}
        run_fields: dict[str, Any] = {"settings": settings, "namespaces": self.namespaces, "pool": self.pool}
        return create_exec_wait_tools(sources, self.options, **run_fields, **store_fields, library=self.library)


class ExecProgram:
    """A program of exec; its nested calls run through the latest outer call of exec or wait."""

    def __init__(self, exec_wait_tools: ExecWaitTools, scope: str, calls: NestedCalls) -> None:
        self.exec_wait_tools = exec_wait_tools
        self.scope = scope
        self.run_id: str | None = None
        self.fatal_error: BaseException | None = None
        self.is_in_use = True
        self._in_flight: Counter[int] = Counter()
        self._calls = calls
        self._loop = asyncio.get_running_loop()

    @property
    def run_context(self) -> RunContext[Any]:
        """The context of the latest outer call."""
        return self._calls.run_context

    @property
    def run_state(self) -> AgentRunState:
        """The shared state of the agent's run that uses the program."""
        return cast("AgentRunState", self._calls.shared_state)

    def attach_to_outer_call(self, calls: NestedCalls) -> None:
        """Continue with another outer call. Raises the program's fatal error, which ends the agent's run."""
        if self.fatal_error is not None:
            raise self.fatal_error
        calls.log.take_over_from(self._calls.log)
        self.is_in_use, self._calls, self._loop = True, calls, asyncio.get_running_loop()

    async def call(self, name: str, arguments: Any, context: ToolCallContext) -> Any:
        """Run one nested call."""
        calls, loop = self._calls, self._loop
        work, run = calls.call(name, arguments, context), id(calls.shared_state)
        self._in_flight[run] += 1
        try:
            if loop is asyncio.get_running_loop():
                return await work
            # The program runs on the loop of its exec; clients and the scheduler belong to the latest run.
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
        finally:
            self._in_flight[run] -= 1
            if calls.fatal_error is not None:
                self._set_fatal_error_and_cancel(calls.fatal_error)

    async def add_and_call_tool(self, tool: Tool[Any], arguments: Any, context: ToolCallContext) -> Any:
        """Run one nested call of a tool that is not in the catalog yet."""
        toolset = FunctionToolset[Any]([tool])
        found = await toolset.get_tools(self.run_context)
        self._calls.add_tool(tool.name, make_source_tool(found[tool.name]))
        return await self.call(tool.name, arguments, context)

    def _set_fatal_error_and_cancel(self, fatal: BaseException) -> None:
        # The outer call may have returned: then the current one ends, or the next one.
        self.fatal_error = fatal
        if self._calls.fatal_error is None:
            self._calls.fatal_error = fatal
            self._calls.cancel_program()

    async def clear_error_and_abort_if_in_flight(self, run: AgentRunState) -> None:
        """Abort the program if calls of this run are in flight: their connections close with the run."""
        self.fatal_error = None
        if self.run_id is None:
            return
        program_filter: dict[str, Any] = {
            "conversation_id": self.scope,
            "run_id": self.run_id,
            "reason": "the run of the agent has ended",
        }
        if self.run_state is run:
            await self.exec_wait_tools.abort(**program_filter, only_in_flight=True)
        if self._in_flight[id(run)]:  # another run of the conversation continues it
            await self.exec_wait_tools.abort(**program_filter)


class ExecWaitSurface:
    """exec and wait over the tools of a step. ``direct``: names of tools that the model also gets."""

    title = EXEC_NAME
    continues_across_calls = True
    error_style = ErrorStyle(includes_tool_name=True)

    def __init__(self, config: ExecWaitConfig, sources: Any, direct: Iterable[Any]) -> None:
        self.options = config.options
        self.direct = ExecWaitTools.parse_direct_names(direct)
        self.sources = ToolSources(sources)
        core_options = CodeModeOptions.of(config.settings)
        self.states = ConversationStates(EXEC_NAME, "code", "command") if core_options.state is None else None
        if self.states is not None:
            config = dataclasses.replace(config, settings=core_options.with_parts(state=self.states))
        self.settings = config.create_tools([]).settings
        self._config = config
        self._compiled = CompiledToolCache[ExecWaitTools](self._make_tools)
        self._created_tools: WeakSet[ExecWaitTools] = WeakSet()
        self._programs: WeakValueDictionary[str, ExecProgram] = WeakValueDictionary()

    def _make_tools(self, tools: Mapping[str, codemode.Tool], _newest: ExecWaitTools | None) -> ExecWaitTools:
        tools_by_owner: dict[tuple[str, str], list[codemode.Tool]] = {}
        for key, tool in tools.items():
            source, owner = (
                (_HOST_SOURCE, _CORE_OWNER) if key == tool.name else key.removesuffix(f":{tool.name}").split(":", 1)
            )
            tools_by_owner.setdefault((source, owner), []).append(tool)
        tool_sources = [
            ToolSource(owner_tools, source, owner) for (source, owner), owner_tools in tools_by_owner.items()
        ]
        exec_wait_tools = self._config.create_tools([*tool_sources, *self.sources.servers])
        self._created_tools.add(exec_wait_tools)
        return exec_wait_tools

    async def aclose(self) -> None:
        """End every program, or release it to its store."""
        await asyncio.gather(*(pair.aclose() for pair in [*self._created_tools]))

    async def build_tools(self, program_tools: Mapping[str, ToolsetTool[Any]]) -> ModelTools:
        """Return exec and wait."""
        exec_wait_tools = await self._compiled.get_or_compile(program_tools)
        return ModelTools(
            surface_tools=(
                self._make_surface_tool(exec_wait_tools, EXEC_NAME),
                self._make_surface_tool(exec_wait_tools, WAIT_NAME),
            )
        )

    def _make_surface_tool(self, exec_wait_tools: ExecWaitTools, name: str) -> SurfaceTool:
        tool = exec_wait_tools.exec if name == EXEC_NAME else exec_wait_tools.wait
        definition = ToolDefinition(
            name=name,
            description=tool.description,
            parameters_json_schema=tool.input_schema,
            metadata={**tool.metadata, **(make_code_argument_metadata("code") if name == EXEC_NAME else {})},
        )
        new_call = partial(_ExecWaitCall, self, exec_wait_tools, name)
        kind = tool.metadata["toolKind"]
        return SurfaceTool(kind=kind, definition=definition, validator=_ARGUMENTS_ADAPTER.validator, new_call=new_call)

    def is_reserved_name(self, name: str) -> bool:
        """Return whether this is exec or wait."""
        return name in (EXEC_NAME, WAIT_NAME)

    def rebuild_outer_call(self, opened: OpenedContinuation) -> tuple[str, dict[str, Any]]:
        """Return the call of exec that paused."""
        return EXEC_NAME, {"code": opened.js}

    def attach_or_create_program(
        self, run_id: Any, exec_wait_tools: ExecWaitTools, scope: str, calls: NestedCalls
    ) -> ExecProgram:
        """Attach the waiting program with this run id to the outer call, or create one."""
        program = self._programs.get(run_id) if isinstance(run_id, str) else None
        if program is None or program.scope != scope or program.is_in_use:
            return ExecProgram(exec_wait_tools, scope, calls)
        program.attach_to_outer_call(calls)
        return program

    def add_waiting_program(self, program: ExecProgram, run_id: str) -> None:
        """Remember a waiting program by its run id."""
        program.run_id = run_id
        self._programs[run_id] = program
        program.run_state.waiting_programs[run_id] = program


class _ExecWaitCall:
    """One call of exec or wait."""

    def __init__(
        self, surface: ExecWaitSurface, exec_wait_tools: ExecWaitTools, name: str, *, is_durable: bool
    ) -> None:
        if is_durable:
            raise UserError(
                "exec and wait keep programs waiting in this process, and a durable engine may repeat a run in another"
                " one: use CodeMode there, or run the whole agent in one step."
            )
        self._surface = surface
        self._exec_wait_tools = exec_wait_tools
        self._name = name
        self._metadata: dict[str, str] = {}

    def get_program_text(self, arguments: dict[str, Any]) -> str:
        return str(arguments.get("code", arguments.get("command", "")))

    async def start(self, arguments: dict[str, Any], ctx: RunContext[Any], call: CallContext) -> Any:
        run_id = arguments.get("runId", arguments.get("run_id")) if self._name == WAIT_NAME else None
        program = self._attach_or_create_program(run_id, ctx, call.context)
        tool = program.exec_wait_tools.exec if self._name == EXEC_NAME else program.exec_wait_tools.wait
        self._set_metadata_and_span_attributes(arguments)
        call_context = CallContext(
            tool_call_id=_make_unique_call_id(ctx),
            messages=call.messages,
            context=program,
            conversation_id=program.scope,
        )
        return await self._run_until_wait(program, tool.execute(arguments, call_context))

    async def resume(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        calls: NestedCalls = call.context
        program = self._attach_or_create_program(None, calls.run_context, calls)
        self._set_metadata_and_span_attributes({})
        call_context = CallContext(messages=call.messages, context=program, conversation_id=program.scope)
        return await self._run_until_wait(
            program, self._exec_wait_tools.resume(interrupt, call=call_context, resolutions=answers)
        )

    def format_result(self, result: Any, tool_call_id: str) -> Any:  # noqa: ARG002 - as the other surfaces have it
        plain, objects = split_media(result)
        return ToolReturn([plain, *objects] if objects else plain, metadata=dict(self._metadata))

    def _attach_or_create_program(self, run_id: Any, ctx: RunContext[Any], calls: NestedCalls) -> ExecProgram:
        scope = ctx.conversation_id or ctx.run_id
        if not scope:
            raise UserError("exec and wait need a conversation, which only a run of an agent has.")
        return self._surface.attach_or_create_program(run_id, self._exec_wait_tools, scope, calls)

    def _set_metadata_and_span_attributes(self, arguments: dict[str, Any]) -> None:
        tool = self._exec_wait_tools.exec if self._name == EXEC_NAME else self._exec_wait_tools.wait
        self._metadata = tool.metadata_of(arguments)
        trace.get_current_span().set_attributes(self._metadata)

    async def _run_until_wait(self, program: ExecProgram, work: Awaitable[Any]) -> Any:
        states = self._surface.states
        state_scope = (
            nullcontext()
            if states is None
            else states.use_backend_for_call(program.run_context, program.run_state.states)
        )
        try:
            with state_scope:
                result = await work
        finally:
            program.is_in_use = False
        if not isinstance(result, dict):
            return result
        fields = cast("dict[str, Any]", result)
        if fields.get("status") == "waiting":
            self._surface.add_waiting_program(program, fields["runId"])
        return fields


def _make_unique_call_id(ctx: RunContext[Any]) -> str | None:
    """Return the outer call's id, made unique in the conversation: models repeat ids."""
    call_id = ctx.tool_call_id
    if not call_id:
        return None
    responses = [response for response in ctx.messages if isinstance(response, ModelResponse)][:-1]
    parts = (part for response in responses for part in response.parts if isinstance(part, ToolCallPart))
    earlier = sum(part.tool_call_id == call_id for part in parts)
    return f"{call_id}~{earlier}" if earlier else call_id


_EXCLUDED_TOOL_KINDS = ("tool-search", "capability-load")


@dataclass
class ExecWaitToolset(SurfaceToolset[AgentDepsT]):
    """Replaces all tools except the direct ones with exec and wait."""

    async def _find_direct_names_and_program_tools(
        self, tools: dict[str, ToolsetTool[AgentDepsT]], ctx: RunContext[AgentDepsT]
    ) -> tuple[Collection[str], dict[str, ToolsetTool[AgentDepsT]]]:
        surface = self._exec_wait_surface
        direct_names = {
            name for name, tool in tools.items() if name in surface.direct or tool.tool_def.kind == "output"
        }
        program_tools = {
            name: _without_deferred_loading(tool)
            for name, tool in tools.items()
            if name not in direct_names and _is_in_catalog(tool.tool_def, ctx)
        }
        for key, tool in (await surface.sources.get_toolset_tools_by_id(ctx)).items():
            if key in program_tools:
                raise UserError(f"two tools are called {key!r}: one of the agent, and one of its sources")
            program_tools[key] = tool
        has_no_program_tools = not program_tools and not surface.sources.servers
        if self.run_state is not None:
            self.run_state.allowed_tools = (
                None if has_no_program_tools else frozenset((EXEC_NAME, WAIT_NAME, *surface.direct))
            )
        return direct_names, program_tools

    def _has_no_program_tools(self, program_tools: Mapping[str, ToolsetTool[AgentDepsT]]) -> bool:
        return not program_tools and not self._exec_wait_surface.sources.servers

    @property
    def _program_toolset(self) -> AbstractToolset[AgentDepsT]:
        return SourceRoutingToolset(self.wrapped)

    @property
    def _exec_wait_surface(self) -> ExecWaitSurface:
        return cast("ExecWaitSurface", self._active_surface)


def _is_in_catalog(definition: ToolDefinition, ctx: RunContext[Any]) -> bool:
    """Return whether a tool is in the catalog: no search tools, and none of inactive capabilities."""
    if definition.tool_kind in _EXCLUDED_TOOL_KINDS:
        return False
    return definition.capability_id is None or definition.capability_id in ctx.active_capability_ids


def _without_deferred_loading(tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
    """Return a tool without deferred loading: programs have their own search."""
    definition = tool.tool_def
    if not definition.defer_loading and definition.with_native is None and definition.unless_native is None:
        return tool
    plain_definition = dataclasses.replace(definition, defer_loading=False, with_native=None, unless_native=None)
    return dataclasses.replace(tool, tool_def=plain_definition)
