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
from .code_call import CodeCallSurface, ScriptContext, create_empty_toolset
from .exec_wait import EXEC_NAME, TOOL_NAMES, ExecWaitConfig, ExecWaitSurface, ExecWaitTool
from .graph_state import get_graph_state, make_state_backend, use_graph_state
from .surface_middleware import Handler, InstanceOnlyProperty, Result, SurfaceMiddleware
from .surfaces import Surface, make_options, to_tools
from .tool import TOOL_NAME, CodeModeSurface, CodeModeTool
from .tool_selection import (
    AllowedTools,
    ProgramToolSelector,
    SurfaceMiddlewareSettings,
    ToolCheckedRequest,
    ToolSelector,
    get_model_tool_name,
    get_shown_tools,
    get_tool_name,
)

if TYPE_CHECKING:
    from codemode import ExecWaitTools, NamespaceRegistry


_CODE_MODE_SETTINGS = SurfaceMiddlewareSettings(
    middleware_name="CodeModeMiddleware",
    program_noun="programs",
    run_tool_name=TOOL_NAME,
    call_limit_option="{'execution_policy': {'max_bridge_requests': ...}}",
    name_conflict_message="another tool of the agent is called {name} too: give it another name",
    is_surface_tool_name=TOOL_NAME.__eq__,
    adopts_reviews=True,
)


class CodeModeMiddleware(SurfaceMiddleware):
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
        tools: ProgramToolSelector | None = None,
        keep: ToolSelector = (),
        approve: ApprovalRules | None = None,
        pool: WorkerPool | None = None,
        interrupt_mode: InterruptMode | None = None,
        listing: Listing | None = None,
        store: StoreLike | None = None,
        library: ProgramLibrary | None = None,
    ) -> None:
        self._library = library
        agent_options = make_options(options, pool=pool, listing=listing, store=store)
        self._options = (
            agent_options.with_parts(state=use_graph_state) if agent_options.state is None else agent_options
        )
        self._pool = pool
        super().__init__(_CODE_MODE_SETTINGS, keep, approve, interrupt_mode, tools)

    def _make_surface(self, tools: Sequence[BaseTool]) -> Surface:
        return CodeModeSurface(tools, self._options, self._approvals, self._pool, self._library)

    def _make_surface_tool(self, surface: Surface, request: ToolCallRequest, caller: Caller) -> BaseTool:
        uses_graph_state = self._options.state is use_graph_state
        state = get_graph_state(cast("Any", request).runtime.config, request.state) if uses_graph_state else None
        backend = make_state_backend(state, request.tool_call["id"] or "") if uses_graph_state else None
        return CodeModeTool(cast("CodeModeSurface", surface), caller, backend)

    def _make_refusal(self, request: ToolCallRequest, names: set[str]) -> ToolMessage | None:
        name, tool = request.tool_call["name"], request.tool
        shown_tools, may_need_approval = get_shown_tools(request), any(map(self._approvals.may_need_approval, names))
        if (
            not may_need_approval
            and shown_tools is not None
            and names <= {name for name in shown_tools["native"] if not self._is_called_directly(name, request)}
        ):
            # A provider's own tool, whose calls other middleware or the tool node serves.
            return None
        is_program_tool = tool is not None if shown_tools is None else name in shown_tools["programs"]
        if tool is None and not may_need_approval and not is_program_tool:
            # Nobody here knows it: middleware listed later may, else the tool node says what there is.
            return None
        if is_program_tool:
            return self._make_error_message(
                request, f"{name} is not called directly: call it from a program, as tools.{name}(input)"
            )
        return self._make_error_message(request, f"{name} is not among the tools of this step")


class CodeCallMiddleware(SurfaceMiddleware):
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
        keep: ToolSelector = (),
        approve: ApprovalRules | None = None,
        script_context: ScriptContext | None = None,
        pool: WorkerPool | None = None,
        interrupt_mode: InterruptMode = "per_call",
        store: StoreLike | None = None,
        library: ProgramLibrary | None = None,
    ) -> None:
        self._empty_toolset = create_empty_toolset(options, pool, store, library)
        self._latest_surface: CodeCallSurface | None = None
        self._script_context = script_context
        search, _, execute, *_ = [tool.name for tool in self._empty_toolset.tools]
        self._advice = f"find tools with {search} and call them in a script of {execute}"
        settings = SurfaceMiddlewareSettings(
            middleware_name="CodeCallMiddleware",
            program_noun="scripts",
            run_tool_name=execute,
            call_limit_option="{'vm': {'max_steps': ...}}",
            name_conflict_message=(
                "another tool of the agent is called {name}, as the tools of CodeCall are: give it another name"
            ),
            is_surface_tool_name=CodeCallOptions.is_meta_tool_name,
        )
        super().__init__(settings, keep, approve, interrupt_mode)

    def _make_surface(self, tools: Sequence[BaseTool]) -> CodeCallSurface:
        # What was indexed and embedded for another step, or for another conversation, is not again.
        self._latest_surface = CodeCallSurface(tools, self._empty_toolset, self._approvals, self._latest_surface)
        return self._latest_surface

    def _make_surface_tool(self, surface: Surface, request: ToolCallRequest, caller: Caller) -> BaseTool:
        make_context, runtime = self._script_context, cast("Any", request).runtime
        script_context = None if make_context is None else partial(make_context, runtime)
        return cast("CodeCallSurface", surface).make_meta_tool(request.tool_call["name"], caller, script_context)

    def _list_visible_only(self, tools: Iterable[Any]) -> frozenset[str]:
        surface = cast("CodeCallSurface", self._get_surface(self._select_program_tools(to_tools(tools))))
        visible_only = frozenset(name for name in surface.visible_names() if name not in surface.async_core)
        self._approvals.reject_unindexed(visible_only)
        return visible_only

    def _may_model_call(self, names: Collection[str], request: ToolCallRequest) -> bool:
        shown_tools = get_shown_tools(request)
        visible_names = self._get_visible_names(request) if shown_tools is None else shown_tools["native"]
        return all(self._is_called_directly(name, request) or name in visible_names for name in names)

    def _get_visible_names(self, request: ToolCallRequest) -> Collection[str]:
        return self._get_surface(self._find_step_tools(request)[1]).visible_names()

    def _make_refusal(self, request: ToolCallRequest, names: set[str]) -> ToolMessage:  # noqa: ARG002 - as above
        # The tool node would list all that there is, hidden or not.
        name = request.tool_call["name"]
        return self._make_error_message(request, f"there is no tool {name!r} to call directly: {self._advice}")


_EXEC_WAIT_SETTINGS = SurfaceMiddlewareSettings(
    middleware_name="ExecWaitMiddleware",
    program_noun="programs",
    run_tool_name=EXEC_NAME,
    call_limit_option="{'maxToolCalls': ...}",
    name_conflict_message="{name} cannot stand beside the pair",
    is_surface_tool_name=TOOL_NAMES.__contains__,
    is_callable_name=lambda _name: True,  # by its id
    keep_option="direct",
    counts_calls=False,
)


class ExecWaitMiddleware(SurfaceMiddleware):
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
        exec_wait_options = ExecWaitOptions.from_config(options, agent)
        self.is_enabled = exec_wait_options.enabled or not exec_wait_options.is_set("enabled")
        create_options = {"namespaces": namespaces, "store": store, "tenant": tenant, "app": app, "library": library}
        self._config = ExecWaitConfig(exec_wait_options, sources, settings=settings, pool=pool, **create_options)
        self._latest_surface: ExecWaitSurface | None = None
        super().__init__(_EXEC_WAIT_SETTINGS, _to_names(direct), approve, interrupt_mode)
        if not self.is_enabled:
            self.state_schema = AgentState

    @InstanceOnlyProperty
    def tools(self) -> Sequence[BaseTool]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tools that the agent gets from here."""
        return super().tools if self.is_enabled else []

    async def aclose(self) -> None:
        """End every program that waits; those that a store keeps are given back, for others to go on with."""
        for exec_wait_tools in self._list_exec_wait_tools():
            await exec_wait_tools.aclose()
        await self._config.aclose()

    async def abort(self, thread_id: str) -> int:
        """End the programs of a thread, with their calls; return how many there were."""
        return sum([await exec_wait_tools.abort(thread_id) for exec_wait_tools in self._list_exec_wait_tools()])

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

    def _list_exec_wait_tools(self) -> list[ExecWaitTools]:
        surfaces = cast(
            "list[ExecWaitSurface]", [*self._surfaces.list_surfaces(), *self._config.waiting.list_surfaces()]
        )
        return [*{id(surface): surface.exec_wait_tools for surface in surfaces}.values()]

    def _make_surface(self, tools: Sequence[BaseTool]) -> ExecWaitSurface:
        # What two steps have in common is converted once.
        self._latest_surface = ExecWaitSurface(tools, self._config, self._approvals, self._latest_surface)
        return self._latest_surface

    def _make_surface_tool(self, surface: Surface, request: ToolCallRequest, caller: Caller) -> BaseTool:
        return cast("ExecWaitSurface", surface).make_exec_wait_tool(
            request.tool_call["name"], request.tool_call["args"], caller
        )

    def _build_tools(self, surface: Surface) -> Sequence[BaseTool]:
        return () if cast("ExecWaitSurface", surface).is_empty else surface.build_tools()

    def _make_model_request(
        self, request: ModelRequest[Any], registered: Iterable[BaseTool]
    ) -> tuple[ModelRequest[Any], dict[str, Any]]:
        provider_tools = [tool for tool in request.tools if not isinstance(tool, BaseTool)]
        if unnamed_tools := [
            name for name in map(get_model_tool_name, provider_tools) if name not in self._selection.kept_names
        ]:
            raise InvalidConfigError(
                f"{unnamed_tools[0]!r} is a tool of the model's provider, which no program can call: name it in direct"
            )
        model_request, update = super()._make_model_request(request, registered)
        if not any(map(self._is_exec_wait_tool, model_request.tools)):
            return model_request, update
        return ToolCheckedRequest.of(
            model_request, AllowedTools(model_request.tools, request.response_format, self.settings.middleware_name)
        ), update

    def _is_exec_wait_tool(self, tool: Any) -> bool:
        return isinstance(tool, ExecWaitTool) and tool.name in TOOL_NAMES

    def _reject_name_conflicts(self, tools: Iterable[Any]) -> None:
        """Refuse none: a tool called exec is one of the catalog. In ``direct`` it is refused as it is named."""

    def _list_same_named(self, tools: Iterable[Any]) -> Collection[str]:
        return {
            name for tool in tools if not self._is_surface_tool(tool) and (name := get_tool_name(tool)) in TOOL_NAMES
        }

    def _describe_unknown_rules(self, known_names: Collection[str], program_tools: Sequence[BaseTool]) -> list[str]:
        if self._approvals.rule_names.issubset(known_names):
            return []  # without a look at ids, for which a surface is made
        surface = cast("ExecWaitSurface", self._get_surface(program_tools))
        return self._approvals.describe_unknown_rules({*known_names, *surface.list_rule_names()}, surface.may_have_tool)

    def _make_refusal(self, request: ToolCallRequest, names: set[str]) -> ToolMessage:  # noqa: ARG002 - as above
        # The tool node would list all that there is, hidden or not.
        name = request.tool_call["name"]
        return self._make_error_message(
            request, f"there is no tool {name!r} to call directly: call it in a program of {EXEC_NAME}"
        )


def _to_names(direct: Any) -> Any:
    """Return the names of tools that are given by name or as they are."""
    if isinstance(direct, str) or not isinstance(direct, Iterable):
        return direct
    return [item if isinstance(item, str) else get_tool_name(item) for item in cast("Iterable[Any]", direct)]
