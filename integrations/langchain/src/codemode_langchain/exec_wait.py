"""exec and wait surface: programs that may continue after the call that started them."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool
from pydantic import PrivateAttr

import codemode
from codemode import (
    CallContext,
    CodeModeOptions,
    ExecWaitOptions,
    Interrupt,
    Tool,
    ToolCallContext,
    ToolSource,
    WorkerPool,
)
from codemode.errors import CodeModeConcurrencyError
from codemode.plugins import PreparedTool, copy_json, is_same_json, split_content
from codemode.stores import StoreLike, open_store

from .approvals import ApprovalPolicy, ApprovalRules, InterruptMode, ToolCaller
from .conversion import FrameworkTool, convert_tool
from .langgraph_internals import NAMESPACE, is_in_node
from .nested import NestedCalls
from .node_tasks import compute_digest
from .surfaces import Surface, SurfaceTool, Toolkit, convert_and_select_program_tools, make_agent_options
from .waiting_programs import (
    ExecProgram,
    WaitingPrograms,
    find_program_scope_and_lifetime,
    get_or_create_graph_run,
    get_or_create_program,
)

if TYPE_CHECKING:
    from codemode import ExecWaitTools, MediaContent, NamespaceRegistry, ProgramLibrary


INPUT_KEY = "input"  # the only argument of a call whose input is no object


@dataclass(eq=False)
class NonLangChainArguments:
    """The `ValidatedArguments` of a tool of another kind: ``value`` for the tool, ``displayed`` for others."""

    tool: PreparedTool
    value: Any
    displayed: dict[str, Any]

    @classmethod
    def of(cls, tool: PreparedTool, value: Any) -> NonLangChainArguments:
        """Return the arguments for a validated input."""
        from pydantic_core import to_jsonable_python

        plain_value: Any = to_jsonable_python(value, fallback=repr)
        is_object = isinstance(plain_value, Mapping)
        return cls(tool, value, dict(cast("Any", plain_value)) if is_object else {INPUT_KEY: plain_value})

    @property
    def schema(self) -> NonLangChainArguments:
        """The object that parses them."""
        return self

    def copy(self) -> dict[str, Any]:
        """Return a copy as plain arguments of a tool call."""
        return copy_json(self.displayed)

    def parse_input(self, _arguments: Any, tool_input: Any, _tool_call_id: str | None, _parse: Any) -> Any:
        """Return the tool's input, which middleware may have changed. Raises `CodeModeToolError`."""
        if not is_same_json(tool_input, self.displayed):
            is_object = isinstance(self.value, Mapping) or INPUT_KEY not in self.displayed
            validated = self.tool.validate_input(tool_input if is_object else tool_input.get(INPUT_KEY))
            self.value = validated.value
        return {INPUT_KEY: self.value}


class NonLangChainTool(BaseTool):
    """One call of a tool that is not LangChain's, as a LangChain tool; it runs on the program's event loop."""

    _tool: PreparedTool = PrivateAttr()
    _context: ToolCallContext = PrivateAttr()
    _loop: asyncio.AbstractEventLoop = PrivateAttr()

    def __init__(self, tool: PreparedTool, name: str, context: ToolCallContext) -> None:
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        super().__init__(name=name, description=tool.description or name, args_schema=schema)
        self._tool = tool
        self._context = context
        self._loop = asyncio.get_running_loop()

    def _run(self, /, **arguments: Any) -> Any:
        if self._tool.execute_kind in ("async", "async_iterator"):
            return asyncio.run_coroutine_threadsafe(self._call_and_await(arguments[INPUT_KEY]), self._loop).result()
        return self._tool.call(arguments[INPUT_KEY], self._context)

    async def _arun(self, /, **arguments: Any) -> Any:
        if self._tool.execute_kind in ("async", "async_iterator"):
            return await self._call_and_await(arguments[INPUT_KEY])
        result = await asyncio.to_thread(self._tool.call, arguments[INPUT_KEY], self._context)
        return await result if inspect.isawaitable(result) else result

    async def _call_and_await(self, value: Any) -> Any:
        result = self._tool.call(value, self._context)
        if inspect.isawaitable(result):
            return await result
        last_item: Any = None
        async for last_item in result:  # noqa: B007 - the last item is the result
            pass
        return last_item


EXEC_NAME, WAIT_NAME = "exec", "wait"
TOOL_NAMES = (EXEC_NAME, WAIT_NAME)
_MCP_SOURCE = "mcp"
_UNAVAILABLE = "runtime_unavailable"
_PARK_APPROVALS = "park"
_LIVE_STATES = ("running", "waiting")


class ExecWaitEnvironment:
    """Options, further sources and waiting programs that all sets of tools share."""

    def __init__(
        self,
        options: ExecWaitOptions | Mapping[str, Any] | None,
        sources: Iterable[ToolSource],
        *,
        settings: CodeModeOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
        **create_options: Any,
    ) -> None:
        self.options = ExecWaitOptions.of(options)
        self.sources = [sources] if isinstance(sources, ToolSource) else [*sources]
        if invalid_sources := [source for source in self.sources if not isinstance(cast("Any", source), ToolSource)]:
            raise ValueError(f"sources must be ToolSource, got {invalid_sources[0]!r}")
        self.waiting = WaitingPrograms()
        self._settings = make_agent_options(settings, pool=pool, has_clock=False)
        store: StoreLike | None = create_options.get("store")
        self._create_options: dict[str, Any] = {
            "pool": pool,
            **create_options,
            "store": None if store is None else open_store(store),
        }
        self._first_tools: ExecWaitTools | None = None

    @property
    def is_journaled(self) -> bool:
        """True if there is a store or a journal."""
        return self._create_options.get("store") is not None or self._settings.continuation.journal is not None

    def create_tools(self, sources: Sequence[ToolSource]) -> ExecWaitTools:
        """Create exec and wait over tools. The first ones own the event loop for programs of sync callers."""
        exec_wait_tools = codemode.create_exec_wait_tools(
            sources, self.options, settings=self._settings, **self._create_options
        )
        self._first_tools = self._first_tools or exec_wait_tools
        return exec_wait_tools

    async def aclose(self) -> None:
        """Close the event loop of sync callers."""
        if self._first_tools is not None:
            await self._first_tools.aclose()

    def run_blocking(self, coroutine: Any) -> Any:
        """Run a coroutine from this thread and wait for it."""
        return cast("Any", self._first_tools).run_sync(coroutine)


class ExecWaitSurface(Surface):
    """exec and wait over a set of tools and the tools of further sources."""

    def __init__(
        self,
        tools: Iterable[BaseTool],
        rules: ExecWaitEnvironment,
        approvals: ApprovalPolicy,
        previous: ExecWaitSurface | None = None,
    ) -> None:
        super().__init__(tools, approvals, previous)
        self.config = rules
        sources = [ToolSource(self._async_tools, adapt=self._adapt_tool), *map(self._convert_source, rules.sources)]
        self.exec_wait_tools = rules.create_tools(sources)

    @property
    def is_empty(self) -> bool:
        """True if programs would have no tools to call."""
        return not (len(self.exec_wait_tools.catalog) or self.exec_wait_tools.catalog.servers)

    @property
    def core(self) -> ExecWaitTools:
        """See `Surface.core`."""
        return self.exec_wait_tools

    def build_tools(self) -> tuple[SurfaceTool, ...]:
        """See `Surface.build_tools`."""
        return self.make_exec_wait_tool(EXEC_NAME, {}), self.make_exec_wait_tool(WAIT_NAME, {})

    def _is_callable_name(self, name: str) -> bool:  # noqa: ARG002 - as other surfaces have it
        return True  # by id

    def make_exec_wait_tool(
        self, name: str, arguments: Mapping[str, Any], caller: ToolCaller | None = None
    ) -> ExecWaitTool:
        """Return exec or wait with the metadata of a call with these arguments."""
        core = self.exec_wait_tools.exec if name == EXEC_NAME else self.exec_wait_tools.wait
        tool_fields: dict[str, Any] = {"name": name, "description": core.description, "args_schema": core.input_schema}
        return cast("Any", ExecWaitTool)(self, caller, **tool_fields, metadata=core.metadata_of(arguments))

    def list_valid_rule_names(self) -> set[str]:
        """Return the names and ids that approval rules may use, without those of MCP tools."""
        entries = self.exec_wait_tools.catalog.entries
        return {*(entry.id for entry in entries), *(entry.name for entry in entries)}

    def may_be_mcp_tool_id(self, tool_id: str) -> bool:
        """Return whether an id may be that of an MCP tool; these are listed late."""
        return tool_id.startswith(
            tuple(f"{_MCP_SOURCE}:{server.owner}:" for server in self.exec_wait_tools.catalog.servers)
        )

    def get_display_name(self, name: str) -> str:
        """Return the displayed name of a tool by its id."""
        tool = None if name.startswith(f"{_MCP_SOURCE}:") else self.exec_wait_tools.catalog.get(name)
        return name if tool is None else tool.name

    def find_tool(self, name: str) -> PreparedTool | None:
        """Return a tool by id or name."""
        catalog = self.exec_wait_tools.catalog
        return catalog.get(name) or next((entry.tool for entry in catalog.entries if entry.name == name), None)

    def _convert_source(self, source: ToolSource) -> ToolSource:
        if source.source == _MCP_SOURCE:
            return dataclasses.replace(source, adapt=self._adapt_tool)
        tools = source.tools
        if isinstance(tools, Toolkit):
            tools = tools.get_tools()
        if isinstance(tools, Mapping):
            tools_by_name = cast("Mapping[str, Any]", tools)
            tools = {name: self._convert_source_tool(source_tool) for name, source_tool in tools_by_name.items()}
        else:
            tools = [
                self._convert_source_tool(source_tool)
                for source_tool in (cast("Any", tools) if isinstance(tools, Iterable) else [tools])
            ]
        return dataclasses.replace(source, tools=tools, adapt=self._adapt_tool)

    def _convert_source_tool(self, value: Any) -> Any:
        return self._convert_tool(value)[0] if isinstance(value, BaseTool) else value

    def _convert_tool(self, langchain_tool: BaseTool) -> tuple[FrameworkTool, FrameworkTool]:
        async def run(arguments: Any, context: Any) -> Any:
            program = get_or_create_program(context)
            program.set_display_name_if_missing(context.tool_call_id, langchain_tool.name)
            return await program.call(langchain_tool, arguments, context)

        converted = convert_tool(langchain_tool, run)
        return converted, converted

    def _adapt_tool(self, tool: Tool, tool_id: str) -> Tool:
        """Return a tool with the approval rules applied, whose calls run through the agent's handlers."""
        is_langchain_tool = isinstance(tool, FrameworkTool)
        name = tool_id if tool_id.startswith(f"{_MCP_SOURCE}:") else tool.name
        rule_name = self.approvals.find_rule_name_or_last(tool_id, name)
        prepared = PreparedTool.from_tool(tool)
        prepared.compile_schemas()
        approval_check = self.approvals.make_approval_check(rule_name, lambda: tool.annotations or {})

        async def execute(value: Any, context: Any) -> Any:
            program = get_or_create_program(context)
            program.set_display_name_if_missing(context.tool_call_id, rule_name)
            return await program.call(
                NonLangChainTool(prepared, name, context),
                cast("Any", NonLangChainArguments.of(prepared, value)),
                context,
            )

        async def needs_approval(value: Any, context: Any) -> bool:
            get_or_create_program(context).set_display_name_if_missing(context.tool_call_id, rule_name)
            tool_answer = prepared.evaluate_needs_approval(value, context)
            if await tool_answer if inspect.isawaitable(tool_answer) else tool_answer:
                return True
            displayed_arguments = value if is_langchain_tool else cast("Any", NonLangChainArguments.of(prepared, value))
            return approval_check if isinstance(approval_check, bool) else bool(approval_check(displayed_arguments))

        approval = needs_approval if approval_check is not False or tool.needs_approval is not False else False
        return dataclasses.replace(
            tool, needs_approval=approval, **({} if is_langchain_tool or tool.execute is None else {"execute": execute})
        )


class ExecWaitCall:
    """One call of exec or wait, with its scope (thread or run) and the current graph run."""

    def __init__(
        self, surface: ExecWaitSurface, name: str, arguments: Mapping[str, Any], config: RunnableConfig
    ) -> None:
        self._surface = surface
        self._config = surface.config
        self._graph_run = get_or_create_graph_run(config)
        self._scope, self._outlives_run = find_program_scope_and_lifetime(config, self._graph_run)
        # Models repeat call ids: the step's namespace makes them unique, also when the node runs again.
        namespace = config.get("configurable", {}).get(NAMESPACE, "") if is_in_node(config) else secrets.token_hex(8)
        self._step_id = compute_digest([self._scope, namespace])[:8]
        self.name = name
        self.arguments = arguments
        self.continues_program = name == WAIT_NAME
        self.is_journaled = surface.config.is_journaled

    @property
    def program(self) -> str:
        return str(self.arguments.get("code") or self.arguments.get("command") or "")

    def find_tool(self, name: str) -> PreparedTool | None:
        return self._surface.find_tool(name)

    def get_display_name(self, name: str) -> str:
        return self._surface.get_display_name(name)

    def to_model_parts(self, result: Any, tool_call_id: str) -> tuple[Any, list[MediaContent]]:  # noqa: ARG002 - as other surfaces have it
        return split_content(result)

    def start(self, call: CallContext) -> Any:
        return self._config.run_blocking(self._run_exec_or_wait(call, None))

    async def astart(self, call: CallContext) -> Any:
        return await self._run_exec_or_wait(call, asyncio.get_running_loop())

    def resume(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        return self._config.run_blocking(self._resume_program(interrupt, answers, call.context, None))

    async def aresume(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        return await self._resume_program(interrupt, answers, call.context, asyncio.get_running_loop())

    async def _run_exec_or_wait(self, call: CallContext, home_loop: asyncio.AbstractEventLoop | None) -> Any:
        run: NestedCalls = call.context
        run_id = (self.arguments.get("runId") or self.arguments.get("run_id")) if self.continues_program else None
        waiting_program = self._config.waiting.find(run_id, self._scope)
        surface, program = (
            (self._surface, ExecProgram())
            if waiting_program is None
            else (waiting_program.surface, waiting_program.program)
        )
        tool = surface.exec_wait_tools.wait if self.continues_program else surface.exec_wait_tools.exec
        call_id = f"{call.tool_call_id}.{self._step_id}"

        def execute(program: ExecProgram) -> Any:
            return tool.execute(self.arguments, self._make_context(program, call_id))

        return await self._run_until_wait(surface, program, run, home_loop, execute, run_id)

    async def _resume_program(
        self,
        interrupt: Interrupt,
        answers: Mapping[str, Any],
        run: NestedCalls,
        home_loop: asyncio.AbstractEventLoop | None,
    ) -> Any:
        def resume_interrupt(program: ExecProgram) -> Any:
            return self._surface.exec_wait_tools.resume(
                interrupt, call=self._make_context(program), resolutions=answers or None
            )

        result: Any = await self._run_until_wait(self._surface, ExecProgram(), run, home_loop, resume_interrupt, None)
        if isinstance(result, dict) and cast("Any", result).get("code") == _UNAVAILABLE:
            # The answers are saved; the call can be retried.
            raise CodeModeConcurrencyError(cast("Any", result)["error"])
        return cast("Any", result)

    def _make_context(self, program: ExecProgram, call_id: str | None = None) -> CallContext:
        return CallContext(tool_call_id=call_id, context=program, conversation_id=self._scope or None)

    async def _run_until_wait(
        self,
        surface: ExecWaitSurface,
        program: ExecProgram,
        run: NestedCalls,
        home_loop: asyncio.AbstractEventLoop | None,
        work: Callable[[ExecProgram], Any],
        run_id: Any,
    ) -> Any:
        """Run a part of a program whose nested calls this outer call runs, and record whether it waits then."""
        run.can_ask = self._config.options.approvals != _PARK_APPROVALS
        is_started = program.attach_to_outer_call(run, home_loop)
        try:
            result = await work(program)
        finally:
            if is_started:
                program.detach_from_outer_call()
        if is_started:
            await self._record_waiting_state_or_abort(surface, program, result, run_id)
        return result

    async def _record_waiting_state_or_abort(
        self, surface: ExecWaitSurface, program: ExecProgram, result: Any, run_id: Any
    ) -> None:
        """Record whether a program waits, for later calls of wait and for the end of the agent's run."""
        is_waiting = isinstance(result, dict) and cast("Any", result).get("status") == "waiting"
        waiting_run_id = cast("Any", result)["runId"] if is_waiting else None
        is_live = any(
            run.run_id == run_id and run.state in _LIVE_STATES for run in surface.exec_wait_tools.runs(self._scope)
        )
        if run_id != waiting_run_id and not is_live:
            self._config.waiting.remove(run_id, self._scope)
            if self._graph_run is not None:
                self._graph_run.remove_program(run_id)
        if waiting_run_id is None:
            return
        scope, exec_wait_tools, only_in_flight = self._scope, surface.exec_wait_tools, self._outlives_run
        self._config.waiting.add(waiting_run_id, surface, scope, program, self._config.options.snapshot_ttl_seconds)

        async def abort_program() -> None:
            await exec_wait_tools.abort(
                scope or None, run_id=waiting_run_id, reason="the agent's run has ended", only_in_flight=only_in_flight
            )

        if self._graph_run is not None and not self._graph_run.add_program(
            waiting_run_id, abort_program, self._config.run_blocking
        ):
            await abort_program()


class ExecWaitTool(SurfaceTool):
    """exec or wait. Create both with `create_exec_wait_tools`."""

    name: str = ""
    description: str = ""

    @property
    def pair(self) -> ExecWaitTools:
        """The core's exec and wait, with runs by thread, telemetry and `aclose`."""
        return self._surface.exec_wait_tools

    # The core validates the model's input: any key is an argument, "self" too.

    def _run(self, /, **arguments: Any) -> Any:
        return self._run_outer_call(self._make_call(arguments))

    async def _arun(self, /, **arguments: Any) -> Any:
        return await self._arun_outer_call(self._make_call(arguments))

    def _make_call(self, arguments: Mapping[str, Any]) -> ExecWaitCall:
        return ExecWaitCall(self._surface, self.name, arguments, ensure_config())


def create_exec_wait_tools(
    tools: Iterable[Any] | Toolkit,
    options: ExecWaitOptions | Mapping[str, Any] | None = None,
    *,
    sources: Iterable[ToolSource] = (),
    approve: ApprovalRules | None = None,
    settings: CodeModeOptions | Mapping[str, Any] | None = None,
    namespaces: NamespaceRegistry | None = None,
    pool: WorkerPool | None = None,
    store: StoreLike | None = None,
    tenant: str | None = None,
    app: str | None = None,
    library: ProgramLibrary | None = None,
    interrupt_mode: InterruptMode = "per_call",
) -> list[BaseTool]:
    """Convert LangChain tools, or a toolkit, to exec and wait, for ``bind_tools``, ``ToolNode`` and so on.

    ``sources``: further tools, as in `codemode.create_exec_wait_tools`. ``settings``: the ``options`` of
    `create_code_mode_tool`. ``approve``, ``interrupt_mode`` and ``library``: as there. Programs belong to the LangGraph
    thread. Raises `ValueError` as both do, and for tools that need injected state: use `ExecWaitMiddleware` for those.
    """
    create_options = {"namespaces": namespaces, "store": store, "tenant": tenant, "app": app, "library": library}
    rules = ExecWaitEnvironment(options, sources, settings=settings, pool=pool, **create_options)
    approvals = ApprovalPolicy(approve, interrupt_mode)
    surface = ExecWaitSurface(
        convert_and_select_program_tools(tools, None, "ExecWaitMiddleware", str), rules, approvals
    )
    approvals.require_rule_names_exist(surface.list_valid_rule_names(), surface.may_be_mcp_tool_id)
    return [*surface.build_tools()]
