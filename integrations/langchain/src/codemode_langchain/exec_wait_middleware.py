"""exec and wait as middleware of an agent: the model sees this pair, whatever the number of tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from langchain.agents.middleware.types import AgentState, ModelRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from codemode import CodeModeOptions, ExecWaitOptions, InvalidConfigError, ToolSource, WorkerPool
from codemode.plugins import StoreLike, configured

from .approvals import ApprovalRules, InterruptMode
from .being_built import OfAnObject
from .callers import Caller
from .exec_wait import EXEC, NAMES, ExecWaitFace, ExecWaitTool, PairRules
from .faces import Face
from .hiding_middleware import Handler, HidingMiddleware, Result
from .neighbours import HidingWords
from .offered_tools import CheckedRequest, Offer, offered_name
from .shown_tools import name_of

if TYPE_CHECKING:
    from codemode import ExecWaitTools, NamespaceRegistry

_WORDS = HidingWords(
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
        interrupt_mode: InterruptMode = "per_call",
    ) -> None:
        given: ExecWaitOptions = configured(options, agent)
        self.is_enabled = given.enabled or not given.says("enabled")
        kept = {"namespaces": namespaces, "store": store, "tenant": tenant, "app": app}
        self._rules = PairRules(given, sources, settings=settings, pool=pool, **kept)
        self._newest: ExecWaitFace | None = None
        super().__init__(_WORDS, _named(direct), approve, interrupt_mode)
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
