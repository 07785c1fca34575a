"""Agent middleware for codeMode, CodeCall, and exec and wait."""

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

from .approvals import ApprovalRules, InterruptMode, ToolCaller
from .code_call import CodeCallSurface, ScriptContext, create_empty_code_call_toolset
from .exec_wait import EXEC_NAME, TOOL_NAMES, ExecWaitEnvironment, ExecWaitSurface, ExecWaitTool
from .graph_state import get_graph_state, make_state_backend, return_no_backend_for_graph_state
from .surface_middleware import Handler, InstanceOnlyProperty, Result, SurfaceMiddleware
from .surfaces import Surface, make_agent_options, select_non_provider_tools
from .tool import TOOL_NAME, CodeModeSurface, CodeModeTool
from .tool_selection import (
    AllowedTools,
    ProgramToolSelector,
    SurfaceMiddlewareSettings,
    ToolCheckedRequest,
    ToolSelector,
    get_model_tool_name,
    get_step_tool_names,
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
    """Replaces the agent's tools with ``codeMode``, except those in ``keep``.

    ``keep``: tools that the model calls directly; ``tools``: tools that programs call. Each is a collection of names, a
    mapping that a tool's metadata must contain, or a predicate; ``tools`` may be "all". A tool in both is called both
    ways, one in neither directly; without ``tools`` programs call all tools not in ``keep``. ``listing``:
    ``execution_policy.listing``. ``approve``, ``interrupt_mode``, ``store`` and ``library``: as in
    `create_code_mode_tool`. Calls that a `HumanInTheLoopMiddleware` of the agent reviews by name (also ``interrupt_on``
    of a deep agent) wait for approval in programs too, by default in the mode of that review. List this middleware
    before middleware that must see nested calls.

    Raises `ValueError` at creation for invalid options and for a tool in both ``keep`` and ``approve``; when the agent
    is built, for a name in ``keep``, ``tools`` or ``approve`` that matches no tool (if other middleware may add tools,
    an unknown name in ``approve`` is logged, and a program then raises); and before the first model call, for
    middleware that would not see the nested calls that it must see. Raises `UnknownVersionError` if that cannot be
    determined. A `ToolCallLimitMiddleware` of the agent counts nested calls too.

    Programs can call only tools that the model saw in the same step, and the model can call only kept tools directly;
    other direct calls get a message. An ``approve`` function is also asked about direct calls of kept tools; calls that
    need approval are refused, because only programs can wait.
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
        agent_options = make_agent_options(options, pool=pool, listing=listing, store=store)
        self._options = (
            agent_options.with_parts(state=return_no_backend_for_graph_state)
            if agent_options.state is None
            else agent_options
        )
        self._pool = pool
        super().__init__(_CODE_MODE_SETTINGS, keep, approve, interrupt_mode, tools)

    def _make_surface(self, tools: Sequence[BaseTool]) -> Surface:
        return CodeModeSurface(tools, self._options, self._approvals, self._pool, self._library)

    def _make_surface_tool(self, surface: Surface, request: ToolCallRequest, caller: ToolCaller) -> BaseTool:
        uses_graph_state = self._options.state is return_no_backend_for_graph_state
        state = get_graph_state(cast("Any", request).runtime.config, request.state) if uses_graph_state else None
        backend = make_state_backend(state, request.tool_call["id"] or "") if uses_graph_state else None
        return CodeModeTool(cast("CodeModeSurface", surface), caller, backend)

    def _make_refusal_message(self, request: ToolCallRequest, names: set[str]) -> ToolMessage | None:
        name, tool = request.tool_call["name"], request.tool
        visible_tools, may_need_approval = (
            get_step_tool_names(request),
            any(map(self._approvals.may_need_approval, names)),
        )
        if (
            not may_need_approval
            and visible_tools is not None
            and names <= {name for name in visible_tools["native"] if not self._may_be_called_directly(name, request)}
        ):
            # A provider's tool, which other middleware or the tool node runs.
            return None
        is_program_tool = tool is not None if visible_tools is None else name in visible_tools["programs"]
        if tool is None and not may_need_approval and not is_program_tool:
            # Unknown here: later middleware or the tool node answers.
            return None
        if is_program_tool:
            return self._make_error_message(
                request, f"{name} is not called directly: call it from a program, as tools.{name}(input)"
            )
        return self._make_error_message(request, f"{name} is not among the tools of this step")


class CodeCallMiddleware(SurfaceMiddleware):
    """Replaces the agent's tools with search, describe, execute and, if direct calls are enabled, invoke.

    Tools in ``keep``, and tools that ``options`` leave visible, stay with the model. ``options``, ``approve``,
    ``interrupt_mode``, ``pool``, ``store`` and ``library``: as in `create_code_call_tools`. ``script_context``: returns
    a script's context from the agent's ``ToolRuntime``. List this middleware before middleware that must see nested
    calls. Raises `ValueError` as `CodeModeMiddleware` does, and for an invalid tool when the agent is built.

    Scripts and direct calls reach only tools that the model saw in the same step. Direct calls of other names all get
    the same message. Direct calls of visible tools that need approval are refused, because only scripts and invoke can
    wait.
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
        self._empty_toolset = create_empty_code_call_toolset(options, pool, store, library)
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
            is_surface_tool_name=CodeCallOptions.looks_like_meta_tool_name,
        )
        super().__init__(settings, keep, approve, interrupt_mode)

    def _make_surface(self, tools: Sequence[BaseTool]) -> CodeCallSurface:
        # Reuses the search index and embeddings of earlier steps.
        self._latest_surface = CodeCallSurface(tools, self._empty_toolset, self._approvals, self._latest_surface)
        return self._latest_surface

    def _make_surface_tool(self, surface: Surface, request: ToolCallRequest, caller: ToolCaller) -> BaseTool:
        make_context, runtime = self._script_context, cast("Any", request).runtime
        script_context = None if make_context is None else partial(make_context, runtime)
        return cast("CodeCallSurface", surface).make_meta_tool(request.tool_call["name"], caller, script_context)

    def _list_model_only_names_and_reject_rules(self, tools: Iterable[Any]) -> frozenset[str]:
        surface = cast(
            "CodeCallSurface", self._get_or_create_surface(self._select_program_tools(select_non_provider_tools(tools)))
        )
        visible_only = frozenset(name for name in surface.list_visible_names() if name not in surface.async_core)
        self._approvals.reject_rules_for_unindexed_tools(visible_only)
        return visible_only

    def _may_model_call(self, names: Collection[str], request: ToolCallRequest) -> bool:
        visible_tools = get_step_tool_names(request)
        visible_names = self._get_visible_names(request) if visible_tools is None else visible_tools["native"]
        return all(self._may_be_called_directly(name, request) or name in visible_names for name in names)

    def _get_visible_names(self, request: ToolCallRequest) -> Collection[str]:
        return self._get_or_create_surface(self._find_registered_and_step_tools(request)[1]).list_visible_names()

    def _make_refusal_message(self, request: ToolCallRequest, names: set[str]) -> ToolMessage:  # noqa: ARG002 - as above
        # The tool node would list all tools, hidden ones too.
        name = request.tool_call["name"]
        return self._make_error_message(request, f"there is no tool {name!r} to call directly: {self._advice}")


_EXEC_WAIT_SETTINGS = SurfaceMiddlewareSettings(
    middleware_name="ExecWaitMiddleware",
    program_noun="programs",
    run_tool_name=EXEC_NAME,
    call_limit_option="{'maxToolCalls': ...}",
    name_conflict_message="no direct tool can be named {name}: exec and wait have these names",
    is_surface_tool_name=TOOL_NAMES.__contains__,
    is_callable_name=lambda _name: True,  # by its id
    keep_option="direct",
    counts_calls=False,
)


class ExecWaitMiddleware(SurfaceMiddleware):
    """Replaces the agent's tools with exec and wait, except those named in ``direct``.

    ``sources``: further tools, as in `codemode.create_exec_wait_tools`: of plugins, clients and MCP servers.
    ``options``: `codemode.ExecWaitOptions`, a mapping, True or False, or a configuration with ``tools.codeMode``; those
    of an ``agent`` take precedence. Only ``enabled`` False turns the middleware off. ``settings``: approvals,
    continuations, telemetry. ``approve``: as in `create_code_mode_tool`; names may be ids, and must be for MCP tools.
    With a ``store`` programs outlive the process. List this middleware before middleware that must see nested calls,
    and after middleware that changes tools. Raises `ValueError` for invalid options, later as `CodeModeMiddleware`
    does, and for a limit of nested calls, which a program may make after the outer call returned.

    Programs belong to the thread, or to the run if the thread is not stored. When a run of the agent ends, its waiting
    programs with calls in flight end too.
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
        self.is_enabled = exec_wait_options.enabled or not exec_wait_options.is_set_explicitly("enabled")
        create_options = {"namespaces": namespaces, "store": store, "tenant": tenant, "app": app, "library": library}
        self._config = ExecWaitEnvironment(exec_wait_options, sources, settings=settings, pool=pool, **create_options)
        self._latest_surface: ExecWaitSurface | None = None
        super().__init__(_EXEC_WAIT_SETTINGS, _to_tool_names(direct), approve, interrupt_mode)
        if not self.is_enabled:
            self.state_schema = AgentState

    @InstanceOnlyProperty
    def tools(self) -> Sequence[BaseTool]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tools that this middleware adds to the agent."""
        return super().tools if self.is_enabled else []

    async def aclose(self) -> None:
        """End waiting programs; release those in a store, so that other processes can continue them."""
        for exec_wait_tools in self._list_exec_wait_tools():
            await exec_wait_tools.aclose()
        await self._config.aclose()

    async def abort(self, thread_id: str) -> int:
        """Abort the programs of a thread with their calls; return their number."""
        return sum([await exec_wait_tools.abort(thread_id) for exec_wait_tools in self._list_exec_wait_tools()])

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Replace the tools of the request with exec and wait."""
        return super().wrap_model_call(request, handler) if self.is_enabled else handler(request)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Replace the tools of the request with exec and wait."""
        return await (super().awrap_model_call(request, handler) if self.is_enabled else handler(request))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Result:
        """Run exec or wait; pass calls of direct tools on, and refuse all others."""
        return super().wrap_tool_call(request, handler) if self.is_enabled else handler(request)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Result:
        """Run exec or wait; pass calls of direct tools on, and refuse all others."""
        return await (super().awrap_tool_call(request, handler) if self.is_enabled else handler(request))

    def _list_exec_wait_tools(self) -> list[ExecWaitTools]:
        surfaces = cast(
            "list[ExecWaitSurface]", [*self._surfaces.list_surfaces(), *self._config.waiting.list_surfaces()]
        )
        return [*{id(surface): surface.exec_wait_tools for surface in surfaces}.values()]

    def _make_surface(self, tools: Sequence[BaseTool]) -> ExecWaitSurface:
        # Reuses conversions of earlier steps.
        self._latest_surface = ExecWaitSurface(tools, self._config, self._approvals, self._latest_surface)
        return self._latest_surface

    def _make_surface_tool(self, surface: Surface, request: ToolCallRequest, caller: ToolCaller) -> BaseTool:
        return cast("ExecWaitSurface", surface).make_exec_wait_tool(
            request.tool_call["name"], request.tool_call["args"], caller
        )

    def _build_tools(self, surface: Surface) -> Sequence[BaseTool]:
        return () if cast("ExecWaitSurface", surface).is_empty else surface.build_tools()

    def _make_model_request_and_record_step(
        self, request: ModelRequest[Any], registered: Iterable[BaseTool]
    ) -> tuple[ModelRequest[Any], dict[str, Any]]:
        provider_tools = [tool for tool in request.tools if not isinstance(tool, BaseTool)]
        if unnamed_tools := [
            name for name in map(get_model_tool_name, provider_tools) if name not in self._selection.keep_option_names
        ]:
            raise InvalidConfigError(
                f"{unnamed_tools[0]!r} is a tool of the model's provider, which programs cannot call: name it in direct"
            )
        model_request, update = super()._make_model_request_and_record_step(request, registered)
        if not any(map(self._is_exec_wait_tool, model_request.tools)):
            return model_request, update
        return ToolCheckedRequest.from_request(
            model_request, AllowedTools(model_request.tools, request.response_format, self.settings.middleware_name)
        ), update

    def _is_exec_wait_tool(self, tool: Any) -> bool:
        return isinstance(tool, ExecWaitTool) and tool.name in TOOL_NAMES

    def _reject_name_conflicts(self, tools: Iterable[Any]) -> None:
        """Accept all names: a tool named exec is in the catalog; the constructor rejects it in ``direct``."""

    def _list_names_shared_with_surface(self, tools: Iterable[Any]) -> Collection[str]:
        return {
            name for tool in tools if not self._is_surface_tool(tool) and (name := get_tool_name(tool)) in TOOL_NAMES
        }

    def _describe_unmatched_rules(self, valid_names: Collection[str], program_tools: Sequence[BaseTool]) -> list[str]:
        if self._approvals.rule_names.issubset(valid_names):
            return []  # avoids creating a surface for the ids
        surface = cast("ExecWaitSurface", self._get_or_create_surface(program_tools))
        return self._approvals.describe_unmatched_rules(
            {*valid_names, *surface.list_valid_rule_names()}, surface.may_be_mcp_tool_id
        )

    def _make_refusal_message(self, request: ToolCallRequest, names: set[str]) -> ToolMessage:  # noqa: ARG002 - as above
        # The tool node would list all tools, hidden ones too.
        name = request.tool_call["name"]
        return self._make_error_message(
            request, f"there is no tool {name!r} to call directly: call it in a program of {EXEC_NAME}"
        )


def _to_tool_names(direct: Any) -> Any:
    """Return the names of tools given as names or objects."""
    if isinstance(direct, str) or not isinstance(direct, Iterable):
        return direct
    return [item if isinstance(item, str) else get_tool_name(item) for item in cast("Iterable[Any]", direct)]
