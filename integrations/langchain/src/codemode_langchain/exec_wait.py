"""The pair exec and wait as tools of LangChain, over tools of one agent or a list of them."""

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
from codemode.plugins import PreparedTool, copy_json, same_json, split_content
from codemode.stores import StoreLike, open_store

from .approvals import ApprovalRules, Approvals, Caller, InterruptMode
from .conversion import LangChainTool, convert
from .faces import Face, OuterTool, Toolkit, for_agents, tools_of
from .graph import digest
from .nested import NestedRun
from .pregel import NAMESPACE, is_in_node
from .running_programs import Program, WaitingPrograms, agent_run, program_of, scope_of

if TYPE_CHECKING:
    from codemode import ExecWaitTools, MediaContent, NamespaceRegistry, ProgramLibrary


INPUT = "input"  # the one argument of a call whose input is no object


@dataclass(eq=False)
class ForeignArguments:
    """The input of one call: ``value`` is what the tool gets, ``shown`` what everybody else does. See `Arguments`."""

    tool: PreparedTool
    value: Any
    shown: dict[str, Any]

    @classmethod
    def of(cls, tool: PreparedTool, value: Any) -> ForeignArguments:
        """Return the arguments of a call with this validated input."""
        from pydantic_core import to_jsonable_python

        plain: Any = to_jsonable_python(value, fallback=repr)
        is_object = isinstance(plain, Mapping)
        return cls(tool, value, dict(cast("Any", plain)) if is_object else {INPUT: plain})

    @property
    def schema(self) -> ForeignArguments:
        """What reads them."""
        return self

    def copy(self) -> dict[str, Any]:
        """Return them as the plain arguments of a tool call."""
        return copy_json(self.shown)

    def parsed(self, _arguments: Any, given: Any, _tool_call_id: str | None, _parse: Any) -> Any:
        """Return the input that the tool gets: middleware may have changed it. Raises `CodeModeToolError`."""
        if not same_json(given, self.shown):
            is_object = isinstance(self.value, Mapping) or INPUT not in self.shown
            validated = self.tool.validate_input(given if is_object else given.get(INPUT))
            self.value = validated.value
        return {INPUT: self.value}


class ForeignTool(BaseTool):
    """One call of such a tool, as a tool of LangChain: it runs on ``loop``, where the program lives."""

    _tool: PreparedTool = PrivateAttr()
    _context: ToolCallContext = PrivateAttr()
    _loop: asyncio.AbstractEventLoop = PrivateAttr()

    def __init__(self, tool: PreparedTool, name: str, context: ToolCallContext) -> None:
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        super().__init__(name=name, description=tool.description or name, args_schema=schema)
        self._tool = tool
        self._context = context
        self._loop = asyncio.get_running_loop()

    def _run(self, /, **given: Any) -> Any:
        if self._tool.execute_kind in ("async", "async_iterator"):
            return asyncio.run_coroutine_threadsafe(self._called(given[INPUT]), self._loop).result()
        return self._tool.call(given[INPUT], self._context)

    async def _arun(self, /, **given: Any) -> Any:
        if self._tool.execute_kind in ("async", "async_iterator"):
            return await self._called(given[INPUT])
        found = await asyncio.to_thread(self._tool.call, given[INPUT], self._context)
        return await found if inspect.isawaitable(found) else found

    async def _called(self, value: Any) -> Any:
        found = self._tool.call(value, self._context)
        if inspect.isawaitable(found):
            return await found
        last: Any = None
        async for last in found:  # noqa: B007 - the last item is what is wanted
            pass
        return last


EXEC, WAIT = "exec", "wait"
NAMES = (EXEC, WAIT)
_MCP = "mcp"
_UNAVAILABLE = "runtime_unavailable"
_PARK = "park"
_LIVE = ("running", "waiting")


class PairRules:
    """What all pairs of one plugin have in common: options, further sources, and the programs that wait."""

    def __init__(
        self,
        options: ExecWaitOptions | Mapping[str, Any] | None,
        sources: Iterable[ToolSource],
        *,
        settings: CodeModeOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
        **kept: Any,
    ) -> None:
        self.options = ExecWaitOptions.of(options)
        self.sources = [sources] if isinstance(sources, ToolSource) else [*sources]
        if wrong := [one for one in self.sources if not isinstance(cast("Any", one), ToolSource)]:
            raise ValueError(f"sources must be ToolSource, got {wrong[0]!r}")
        self.waiting = WaitingPrograms()
        self._settings = for_agents(settings, pool=pool, has_clock=False)
        store: StoreLike | None = kept.get("store")
        self._more: dict[str, Any] = {"pool": pool, **kept, "store": None if store is None else open_store(store)}
        self._first: ExecWaitTools | None = None

    @property
    def is_journaled(self) -> bool:
        """True where there is a store, which brings a journal."""
        return self._more.get("store") is not None or self._settings.continuation.journal is not None

    def pair(self, sources: Sequence[ToolSource]) -> ExecWaitTools:
        """Return a pair over tools. The first one has the loop on which programs of sync callers live."""
        made = codemode.create_exec_wait_tools(sources, self.options, settings=self._settings, **self._more)
        self._first = self._first or made
        return made

    async def aclose(self) -> None:
        """End the loop of sync callers."""
        if self._first is not None:
            await self._first.aclose()

    def block(self, work: Any) -> Any:
        """Wait for a coroutine in this thread."""
        return cast("Any", self._first).run_sync(work)


class ExecWaitFace(Face):
    """A set of tools as the pair sees it, with the tools of further sources."""

    def __init__(
        self, tools: Iterable[BaseTool], rules: PairRules, approvals: Approvals, before: ExecWaitFace | None = None
    ) -> None:
        super().__init__(tools, approvals, before)
        self.rules = rules
        sources = [ToolSource(self._for_awaiting, adapt=self._adapted), *map(self._source, rules.sources)]
        self.pair = rules.pair(sources)

    @property
    def is_empty(self) -> bool:
        """True where there is nothing that a program could call."""
        return not (len(self.pair.catalog) or self.pair.catalog.servers)

    @property
    def core(self) -> ExecWaitTools:
        """See `Face.core`."""
        return self.pair

    def offered(self) -> tuple[OuterTool, ...]:
        """See `Face.offered`."""
        return self.own_tool(EXEC, {}), self.own_tool(WAIT, {})

    def _can_be_called(self, name: str) -> bool:  # noqa: ARG002 - as other surfaces have it
        return True  # by its id

    def own_tool(self, name: str, arguments: Mapping[str, Any], caller: Caller | None = None) -> ExecWaitTool:
        """Return exec or wait, for a call with these arguments."""
        core = self.pair.exec if name == EXEC else self.pair.wait
        described: dict[str, Any] = {"name": name, "description": core.description, "args_schema": core.input_schema}
        return cast("Any", ExecWaitTool)(self, caller, **described, metadata=core.metadata_of(arguments))

    def known_names(self) -> set[str]:
        """Return the names and ids by which rules may know a tool that is none of a server."""
        entries = self.pair.catalog.entries
        return {*(one.id for one in entries), *(one.name for one in entries)}

    def may_have(self, tool_id: str) -> bool:
        """Tell whether an id may be that of a tool of a server: those are not known before they are asked for."""
        return tool_id.startswith(tuple(f"{_MCP}:{one.owner}:" for one in self.pair.catalog.servers))

    def shown_name(self, name: str) -> str:
        """Return what people know a tool by that programs call by this id."""
        found = None if name.startswith(f"{_MCP}:") else self.pair.catalog.get(name)
        return name if found is None else found.name

    def tool_named(self, name: str) -> PreparedTool | None:
        """Return a tool by its id or its name."""
        catalog = self.pair.catalog
        return catalog.get(name) or next((one.tool for one in catalog.entries if one.name == name), None)

    def _source(self, source: ToolSource) -> ToolSource:
        if source.source == _MCP:
            return dataclasses.replace(source, adapt=self._adapted)
        given = source.tools
        if isinstance(given, Toolkit):
            given = given.get_tools()
        if isinstance(given, Mapping):
            named = cast("Mapping[str, Any]", given)
            given = {name: self._made(one) for name, one in named.items()}
        else:
            given = [self._made(one) for one in (cast("Any", given) if isinstance(given, Iterable) else [given])]
        return dataclasses.replace(source, tools=given, adapt=self._adapted)

    def _made(self, one: Any) -> Any:
        return self._converted(one)[0] if isinstance(one, BaseTool) else one

    def _converted(self, one: BaseTool) -> tuple[LangChainTool, LangChainTool]:
        async def run(arguments: Any, context: Any) -> Any:
            program = program_of(context)
            program.name(context.tool_call_id, one.name)
            return await program.call(one, arguments, context)

        made = convert(one, run)
        return made, made

    def _adapted(self, tool: Tool, tool_id: str) -> Tool:
        """Return what programs call of a tool: gated by the rules, and called through the agent's handlers."""
        is_own = isinstance(tool, LangChainTool)
        name = tool_id if tool_id.startswith(f"{_MCP}:") else tool.name
        rule = self.approvals.rule_for(tool_id, name)
        made = PreparedTool.of(tool)
        made.compile()
        asks = self.approvals.needs_approval(rule, lambda: tool.annotations or {})

        async def foreign(value: Any, context: Any) -> Any:
            program = program_of(context)
            program.name(context.tool_call_id, rule)
            return await program.call(
                ForeignTool(made, name, context), cast("Any", ForeignArguments.of(made, value)), context
            )

        async def gate(value: Any, context: Any) -> bool:
            program_of(context).name(context.tool_call_id, rule)
            own = made.asks_approval(value, context)
            if await own if inspect.isawaitable(own) else own:
                return True
            given = value if is_own else cast("Any", ForeignArguments.of(made, value))
            return asks if isinstance(asks, bool) else bool(asks(given))

        gated = gate if asks is not False or tool.needs_approval is not False else False
        return dataclasses.replace(
            tool, needs_approval=gated, **({} if is_own or tool.execute is None else {"execute": foreign})
        )


class PairCall:
    """One call of exec or wait. ``scope`` says whose programs are meant, ``run`` is that of the graph it is made in."""

    def __init__(self, face: ExecWaitFace, name: str, arguments: Mapping[str, Any], config: RunnableConfig) -> None:
        self._face = face
        self._rules = face.rules
        self._run = agent_run(config)
        self._scope, self._stays = scope_of(config, self._run)
        # Models repeat the ids of calls: that of the step tells them apart, the same when the node runs again.
        place = config.get("configurable", {}).get(NAMESPACE, "") if is_in_node(config) else secrets.token_hex(8)
        self._place = digest([self._scope, place])[:8]
        self.name = name
        self.arguments = arguments
        self.goes_on = name == WAIT
        self.is_journaled = face.rules.is_journaled

    @property
    def program(self) -> str:
        return str(self.arguments.get("code") or self.arguments.get("command") or "")

    def tool_named(self, name: str) -> PreparedTool | None:
        return self._face.tool_named(name)

    def shown_name(self, name: str) -> str:
        return self._face.shown_name(name)

    def shown(self, answer: Any, tool_call_id: str) -> tuple[Any, list[MediaContent]]:  # noqa: ARG002 - as other surfaces have it
        return split_content(answer)

    def start(self, call: CallContext) -> Any:
        return self._rules.block(self._started(call, None))

    async def astart(self, call: CallContext) -> Any:
        return await self._started(call, asyncio.get_running_loop())

    def go_on(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        return self._rules.block(self._gone_on(interrupt, answers, call.context, None))

    async def ago_on(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        return await self._gone_on(interrupt, answers, call.context, asyncio.get_running_loop())

    async def _started(self, call: CallContext, home: asyncio.AbstractEventLoop | None) -> Any:
        run: NestedRun = call.context
        run_id = (self.arguments.get("runId") or self.arguments.get("run_id")) if self.goes_on else None
        known = self._rules.waiting.find(run_id, self._scope)
        face, program = (self._face, Program()) if known is None else (known.face, known.program)
        tool = face.pair.wait if self.goes_on else face.pair.exec
        call_id = f"{call.tool_call_id}.{self._place}"

        def work(program: Program) -> Any:
            return tool.execute(self.arguments, self._context(program, call_id))

        return await self._on(face, program, run, home, work, run_id)

    async def _gone_on(
        self, interrupt: Interrupt, answers: Mapping[str, Any], run: NestedRun, home: asyncio.AbstractEventLoop | None
    ) -> Any:
        def work(program: Program) -> Any:
            return self._face.pair.resume(interrupt, call=self._context(program), resolutions=answers or None)

        result: Any = await self._on(self._face, Program(), run, home, work, None)
        if isinstance(result, dict) and cast("Any", result).get("code") == _UNAVAILABLE:
            # The answers stand, and the same can be tried again.
            raise CodeModeConcurrencyError(cast("Any", result)["error"])
        return cast("Any", result)

    def _context(self, program: Program, call_id: str | None = None) -> CallContext:
        return CallContext(tool_call_id=call_id, context=program, conversation_id=self._scope or None)

    async def _on(
        self,
        face: ExecWaitFace,
        program: Program,
        run: NestedRun,
        home: asyncio.AbstractEventLoop | None,
        work: Callable[[Program], Any],
        run_id: Any,
    ) -> Any:
        """Do a part of a program whose inner calls this outer call makes, and note whether it waits after it."""
        run.can_ask = self._rules.options.approvals != _PARK
        is_mine = program.begin(run, home)
        try:
            result = await work(program)
        finally:
            if is_mine:
                program.end()
        if is_mine:
            await self._note(face, program, result, run_id)
        return result

    async def _note(self, face: ExecWaitFace, program: Program, result: Any, run_id: Any) -> None:
        """Note whether a program waits, for who goes on with it and for the end of the agent's run."""
        waits = isinstance(result, dict) and cast("Any", result).get("status") == "waiting"
        new_id = cast("Any", result)["runId"] if waits else None
        is_live = any(one.run_id == run_id and one.state in _LIVE for one in face.pair.runs(self._scope))
        if run_id != new_id and not is_live:
            self._rules.waiting.forget(run_id, self._scope)
            if self._run is not None:
                self._run.take(run_id)
        if new_id is None:
            return
        scope, pair, is_kept = self._scope, face.pair, self._stays
        self._rules.waiting.keep(new_id, face, scope, program, self._rules.options.snapshot_ttl_seconds)

        async def end() -> None:
            await pair.abort(scope or None, run_id=new_id, reason="the agent's run has ended", only_in_flight=is_kept)

        if self._run is not None and not self._run.leave(new_id, end, self._rules.block):
            await end()


class ExecWaitTool(OuterTool):
    """exec or wait over other tools. Make both with `create_exec_wait_tools`."""

    name: str = ""
    description: str = ""

    @property
    def pair(self) -> ExecWaitTools:
        """The pair of codemode behind it: its runs, by thread, its telemetry, and `aclose`."""
        return self._face.pair

    # What a model writes is read by the core: any of its keys, of these names too, is an argument.

    def _run(self, /, **arguments: Any) -> Any:
        return self._perform(self._call(arguments))

    async def _arun(self, /, **arguments: Any) -> Any:
        return await self._aperform(self._call(arguments))

    def _call(self, arguments: Mapping[str, Any]) -> PairCall:
        return PairCall(self._face, self.name, arguments, ensure_config())


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
    """Turn LangChain tools, or a toolkit, into exec and wait, for ``bind_tools``, ``ToolNode`` and what takes tools.

    ``sources`` are further tools, as `codemode.create_exec_wait_tools` takes them, ``settings`` what is called options
    in `create_code_mode_tool`, ``approve``, ``interrupt_mode`` and ``library`` are as there. Programs belong to the
    LangGraph thread. Raises `ValueError` as both do, and for tools that need injected state: `ExecWaitMiddleware` is
    for those.
    """
    kept = {"namespaces": namespaces, "store": store, "tenant": tenant, "app": app, "library": library}
    rules = PairRules(options, sources, settings=settings, pool=pool, **kept)
    approvals = Approvals(approve, interrupt_mode)
    face = ExecWaitFace(tools_of(tools, None, "ExecWaitMiddleware", str), rules, approvals)
    approvals.require_known(face.known_names(), face.may_have)
    return [*face.offered()]
