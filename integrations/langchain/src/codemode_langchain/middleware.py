"""codeMode, CodeCall, and exec and wait as middleware of an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from langchain.agents.middleware.types import AgentState, ModelRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from codemode import CodeCallOptions, CodeModeOptions, ExecWaitOptions, ProgramLibrary, ToolSource, WorkerPool
from codemode.plugins import Listing
from codemode.stores import StoreLike
from codemode.types import InvalidConfigError

from .approvals import ApprovalRules, Caller, InterruptMode
from .code_call import CodeCallFace, ScriptContext, no_tools
from .exec_wait import EXEC, NAMES, ExecWaitFace, ExecWaitTool, PairRules
from .faces import Face, as_tools, for_agents
from .graph_state import graph_state, in_graph, place_in
from .hiding_middleware import Handler, HidingMiddleware, OfAnObject, Result
from .tool import NAME, CodeModeFace, CodeModeTool
from .tool_selection import CheckedRequest, HidingWords, InPrograms, Kept, Offer, name_of, offered_name, shown_to

if TYPE_CHECKING:
    from codemode import ExecWaitTools, NamespaceRegistry


_WORDS = HidingWords(
    kind="CodeModeMiddleware",
    programs="programs",
    runs=NAME,
    limit="{'execution_policy': {'max_bridge_requests': ...}}",
    taken="another tool of the agent is called {name} too: give it another name",
    is_own=NAME.__eq__,
    adopts_reviews=True,
)


class CodeModeMiddleware(HidingMiddleware):
    """Shows the model ``codeMode`` in place of the agent's tools, except those in ``keep``.

    ``keep`` are tools that the model goes on calling directly, ``tools`` those that programs call: names, a mapping
    that a tool's metadata must hold, or a function of a tool; "all" for ``tools`` alone. One in both is called both
    ways, one in neither directly; without ``tools`` programs call all that are not kept. ``listing`` is
    ``execution_policy.listing``: what the model is told of the tools. ``approve``, ``interrupt_mode`` and ``store`` are
    as in `create_code_mode_tool`. What a `HumanInTheLoopMiddleware` of the agent reviews by name, as that of
    ``interrupt_on`` of a deep agent, waits for a person in programs too, and without ``interrupt_mode`` in the mode of
    that review. List it before middleware that is to see the nested calls. Raises `ValueError` for wrong options and
    for a tool in both ``keep`` and ``approve`` now, and when the agent is built for a name in ``keep``, ``tools`` or
    ``approve`` that fits no tool. Where other middleware may add one, a name in ``approve`` is told of in the log, and
    a program that begins without such a tool raises it. A run raises it before its model is asked for other middleware
    that would not see the nested calls it gates or stands in for, and `UnknownVersionError` where nobody can tell. A
    `ToolCallLimitMiddleware` of the agent counts nested calls too.

    Programs may call what the model was shown in the same step, and the model may call nothing else by itself than
    what is kept: it is told to call it from a program. An ``approve`` that is a function is asked about calls of kept
    tools too, and those that it would have approved are refused, for only programs wait for a person.
    """

    def __init__(
        self,
        *,
        options: CodeModeOptions | Mapping[str, Any] | None = None,
        tools: InPrograms | None = None,
        keep: Kept = (),
        approve: ApprovalRules | None = None,
        pool: WorkerPool | None = None,
        interrupt_mode: InterruptMode | None = None,
        listing: Listing | None = None,
        store: StoreLike | None = None,
        library: ProgramLibrary | None = None,
    ) -> None:
        self._library = library
        given = for_agents(options, pool=pool, listing=listing, store=store)
        self._options = given.having(state=in_graph) if given.state is None else given
        self._pool = pool
        super().__init__(_WORDS, keep, approve, interrupt_mode, tools)

    def _made_face(self, tools: Sequence[BaseTool]) -> Face:
        return CodeModeFace(tools, self._options, self._approvals, self._pool, self._library)

    def _own_tool(self, face: Face, request: ToolCallRequest, caller: Caller) -> BaseTool:
        is_in_graph = self._options.state is in_graph
        state = graph_state(cast("Any", request).runtime.config, request.state) if is_in_graph else None
        place = place_in(state, request.tool_call["id"] or "") if is_in_graph else None
        return CodeModeTool(cast("CodeModeFace", face), caller, place)

    def _refused(self, request: ToolCallRequest, names: set[str]) -> ToolMessage | None:
        name, tool = request.tool_call["name"], request.tool
        shown, gated = shown_to(request), any(map(self._approvals.may_ask, names))
        if (
            not gated
            and shown is not None
            and names <= {one for one in shown["native"] if not self._is_kept(one, request)}
        ):
            # A provider's own tool, whose calls other middleware or the tool node serves.
            return None
        in_programs = tool is not None if shown is None else name in shown["programs"]
        if tool is None and not gated and not in_programs:
            # Nobody here knows it: middleware listed later may, else the tool node says what there is.
            return None
        if in_programs:
            return self._error(
                request, f"{name} is not called directly: call it from a program, as tools.{name}(input)"
            )
        return self._error(request, f"{name} is not among the tools of this step")


class CodeCallMiddleware(HidingMiddleware):
    """Shows the model search, describe, execute and, where direct calls are enabled, invoke.

    They stand in place of the agent's tools, except those named in ``keep`` and what ``options`` leave visible.
    ``options`` are as in `create_code_call_tools`, ``approve``, ``interrupt_mode``, ``pool`` and ``store`` too;
    ``script_context`` makes a script's context of the agent's ``ToolRuntime``. List it before middleware that is to see
    the nested calls. Raises `ValueError` as `CodeModeMiddleware` does, and when the agent is built for what is wrong
    with one of its tools.

    Scripts and direct calls reach what the model was shown in the same step. The model may call nothing else by itself
    than what stays with it: any other name has one answer, registered or not. Of what is visible, calls that need
    approval are refused there, for only scripts and direct calls wait for a person.
    """

    def __init__(
        self,
        *,
        options: CodeCallOptions | Mapping[str, Any] | None = None,
        keep: Kept = (),
        approve: ApprovalRules | None = None,
        script_context: ScriptContext | None = None,
        pool: WorkerPool | None = None,
        interrupt_mode: InterruptMode = "per_call",
        store: StoreLike | None = None,
        library: ProgramLibrary | None = None,
    ) -> None:
        self._core = no_tools(options, pool, store, library)
        self._newest: CodeCallFace | None = None
        self._script_context = script_context
        search, _, execute, *_ = [one.name for one in self._core.tools]
        self._advice = f"find tools with {search} and call them in a script of {execute}"
        words = HidingWords(
            kind="CodeCallMiddleware",
            programs="scripts",
            runs=execute,
            limit="{'vm': {'max_steps': ...}}",
            taken="another tool of the agent is called {name}, as the tools of CodeCall are: give it another name",
            is_own=CodeCallOptions.is_meta_tool_name,
        )
        super().__init__(words, keep, approve, interrupt_mode)

    def _made_face(self, tools: Sequence[BaseTool]) -> CodeCallFace:
        # What was indexed and embedded for another step, or for another conversation, is not again.
        self._newest = CodeCallFace(tools, self._core, self._approvals, self._newest)
        return self._newest

    def _own_tool(self, face: Face, request: ToolCallRequest, caller: Caller) -> BaseTool:
        make, runtime = self._script_context, cast("Any", request).runtime
        script_context = None if make is None else partial(make, runtime)
        return cast("CodeCallFace", face).own_tool(request.tool_call["name"], caller, script_context)

    def _seen_alone(self, tools: Iterable[Any]) -> frozenset[str]:
        face = cast("CodeCallFace", self._face(self._hidden(as_tools(tools))))
        alone = frozenset(name for name in face.visible() if name not in face.awaiting)
        self._approvals.refuse_alone(alone)
        return alone

    def _may_call(self, names: Collection[str], request: ToolCallRequest) -> bool:
        shown = shown_to(request)
        visible = self._visible(request) if shown is None else shown["native"]
        return all(self._is_kept(name, request) or name in visible for name in names)

    def _visible(self, request: ToolCallRequest) -> Collection[str]:
        return self._face(self._called_from(request)[1]).visible()

    def _refused(self, request: ToolCallRequest, names: set[str]) -> ToolMessage:  # noqa: ARG002 - as above
        # The tool node would list all that there is, hidden or not.
        name = request.tool_call["name"]
        return self._error(request, f"there is no tool {name!r} to call directly: {self._advice}")


_EXEC_WAIT_WORDS = HidingWords(
    kind="ExecWaitMiddleware",
    programs="programs",
    runs=EXEC,
    limit="{'maxToolCalls': ...}",
    taken="{name} cannot stand beside the pair",
    is_own=NAMES.__contains__,
    is_callable=lambda _name: True,  # by its id
    keep="direct",
    counts_calls=False,
)


class ExecWaitMiddleware(HidingMiddleware):
    """Shows the model exec and wait in place of the agent's tools, except those named in ``direct``.

    ``sources`` are further tools, as `codemode.create_exec_wait_tools` takes them: of plugins, clients, and connected
    MCP servers. ``options`` are `codemode.ExecWaitOptions`, a mapping, True or False, or a configuration in which they
    are under ``tools.codeMode``; an ``agent``'s own go over them. Only ``enabled`` False switches it off: then nothing
    changes. ``settings``: approvals, continuations, telemetry. ``approve`` is as in `create_code_mode_tool`; its names
    may be ids, and of tools of servers are. With a ``store`` programs outlive the process. List it before middleware
    that is to see inner calls, and after middleware that changes tools. Raises `ValueError` for wrong options now, and
    as `CodeModeMiddleware` does later, and for a limit of inner calls, which a program may make after its answer.

    Programs belong to the thread, or where nothing of it is kept to the run. When a run of the agent ends, however it
    does, those that wait with calls in flight end with it.
    """

    def __init__(
        self,
        *,
        sources: Iterable[ToolSource] = (),
        direct: Collection[Any] = (),
        options: Any = None,
        agent: Any = None,
        approve: ApprovalRules | None = None,
        settings: CodeModeOptions | Mapping[str, Any] | None = None,
        namespaces: NamespaceRegistry | None = None,
        pool: WorkerPool | None = None,
        store: StoreLike | None = None,
        tenant: str | None = None,
        app: str | None = None,
        library: ProgramLibrary | None = None,
        interrupt_mode: InterruptMode = "per_call",
    ) -> None:
        given = ExecWaitOptions.from_config(options, agent)
        self.is_enabled = given.enabled or not given.says("enabled")
        kept = {"namespaces": namespaces, "store": store, "tenant": tenant, "app": app, "library": library}
        self._rules = PairRules(given, sources, settings=settings, pool=pool, **kept)
        self._newest: ExecWaitFace | None = None
        super().__init__(_EXEC_WAIT_WORDS, _named(direct), approve, interrupt_mode)
        if not self.is_enabled:
            self.state_schema = AgentState

    @OfAnObject
    def tools(self) -> Sequence[BaseTool]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tools that the agent gets from here."""
        return super().tools if self.is_enabled else []

    async def aclose(self) -> None:
        """End every program that waits; those that a store keeps are given back, for others to go on with."""
        for pair in self._pairs():
            await pair.aclose()
        await self._rules.aclose()

    async def abort(self, thread_id: str) -> int:
        """End the programs of a thread, with their calls; return how many there were."""
        return sum([await pair.abort(thread_id) for pair in self._pairs()])

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Show the model the pair."""
        return super().wrap_model_call(request, handler) if self.is_enabled else handler(request)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Show the model the pair."""
        return await (super().awrap_model_call(request, handler) if self.is_enabled else handler(request))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Result:
        """Run a program or go on with one; leave calls of direct tools alone, and refuse those of all others."""
        return super().wrap_tool_call(request, handler) if self.is_enabled else handler(request)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Result:
        """Run a program or go on with one; leave calls of direct tools alone, and refuse those of all others."""
        return await (super().awrap_tool_call(request, handler) if self.is_enabled else handler(request))

    def _pairs(self) -> list[ExecWaitTools]:
        faces = cast("list[ExecWaitFace]", [*self._faces.all(), *self._rules.waiting.faces()])
        return [*{id(one): one.pair for one in faces}.values()]

    def _made_face(self, tools: Sequence[BaseTool]) -> ExecWaitFace:
        # What two steps have in common is converted once.
        self._newest = ExecWaitFace(tools, self._rules, self._approvals, self._newest)
        return self._newest

    def _own_tool(self, face: Face, request: ToolCallRequest, caller: Caller) -> BaseTool:
        return cast("ExecWaitFace", face).own_tool(request.tool_call["name"], request.tool_call["args"], caller)

    def _offered(self, face: Face) -> Sequence[BaseTool]:
        return () if cast("ExecWaitFace", face).is_empty else face.offered()

    def _shown(
        self, request: ModelRequest[Any], registered: Iterable[BaseTool]
    ) -> tuple[ModelRequest[Any], dict[str, Any]]:
        own = [one for one in request.tools if not isinstance(one, BaseTool)]
        if unnamed := [name for name in map(offered_name, own) if name not in self._chosen.kept_names]:
            raise InvalidConfigError(
                f"{unnamed[0]!r} is a tool of the model's provider, which no program can call: name it in direct"
            )
        shown, update = super()._shown(request, registered)
        if not any(map(self._is_of_pair, shown.tools)):
            return shown, update
        return CheckedRequest.of(shown, Offer(shown.tools, request.response_format, self.words.kind)), update

    def _is_of_pair(self, one: Any) -> bool:
        return isinstance(one, ExecWaitTool) and one.name in NAMES

    def _refuse_others_of_its_names(self, tools: Iterable[Any]) -> None:
        """Refuse none: a tool called exec is one of the catalog. In ``direct`` it is refused as it is named."""

    def _called_alike(self, tools: Iterable[Any]) -> Collection[str]:
        return {name for one in tools if not self._is_own(one) and (name := name_of(one)) in NAMES}

    def _unknown_rules(self, there: Collection[str], hidden: Sequence[BaseTool]) -> list[str]:
        if self._approvals.names.issubset(there):
            return []  # without a look at ids, for which a surface is made
        face = cast("ExecWaitFace", self._face(hidden))
        return self._approvals.unknown({*there, *face.known_names()}, face.may_have)

    def _refused(self, request: ToolCallRequest, names: set[str]) -> ToolMessage:  # noqa: ARG002 - as above
        # The tool node would list all that there is, hidden or not.
        name = request.tool_call["name"]
        return self._error(request, f"there is no tool {name!r} to call directly: call it in a program of {EXEC}")


def _named(direct: Any) -> Any:
    """Return the names of tools that are given by name or as they are."""
    if isinstance(direct, str) or not isinstance(direct, Iterable):
        return direct
    return [one if isinstance(one, str) else name_of(one) for one in cast("Iterable[Any]", direct)]
