"""Base class of the middleware: replace an agent's tools with those of a surface."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import sys
import weakref
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import takewhile
from types import FrameType
from typing import Any, TypeAlias, TypeVar, cast

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from codemode import CodeModeToolError
from codemode import Tool as ProgramTool
from codemode.plugins import PreparedTool, create_fork_safe_lock

from .approvals import ApprovalPolicy, ApprovalRules, InterruptMode, ToolCaller
from .conversion import OutputCapture, convert_tool, get_annotations, make_tool_call
from .graph_state import get_graph_state, get_state_with_nested_writes
from .langgraph_internals import AgentParts, NodeContext, get_node_context
from .limits import (
    END_CHANNEL,
    Limit,
    NestedCallLimits,
    find_call_limits,
    get_limit_end_message,
    make_call_count_update,
)
from .surfaces import Surface, SurfaceCache, SurfaceTool, select_non_provider_tools
from .tool_selection import (
    AgentToolSelection,
    CodeModeState,
    ProgramToolSelector,
    StepToolRecorder,
    SurfaceMiddlewareSettings,
    check_order_and_collect_review_rules,
    get_tool_name,
    list_tool_names,
    reject_second_surface,
    warn_about_unreviewed_sub_agents,
)

DescribeUnknownRules: TypeAlias = Callable[[Collection[str], Sequence[BaseTool]], list[str]]
"""Return a message for each rule that matches no tool, from all tool names and the program tools."""

_log = logging.getLogger("codemode.tools")


class RuleNameChecker:
    """Checks that the approval rules name tools of the agent."""

    def __init__(self, unknown: DescribeUnknownRules) -> None:
        self._describe_unknown = unknown
        self._has_warned = False

    def require_existing_names(self, valid_names: Collection[str], program_tools: Sequence[BaseTool]) -> None:
        """Raise `ValueError` for a rule that names none of these tools."""
        for message in self._describe_unknown(valid_names, program_tools):
            raise ValueError(message)

    def warn_once_about_unmatched_names(self, valid_names: Collection[str], program_tools: Sequence[BaseTool]) -> None:
        """Log, in the first step only, the rules that name none of its tools; later steps may have others."""
        if self._has_warned:
            return
        self._has_warned = True
        for message in self._describe_unknown(valid_names, program_tools):
            _log.warning("%s A program that starts without such a tool ends the run with this error.", message)


# Frame inspection is for early errors only; guarantees are checked in the running agent.


class InstanceOnlyProperty(property):
    """Property that raises a clear error if `create_agent` gets the class instead of an instance."""

    def __iter__(self) -> Iterator[Any]:
        """Raise `TypeError`: `create_agent` iterates over ``tools`` of the class."""
        raise TypeError("an agent's middleware are objects: write CodeModeMiddleware() instead of CodeModeMiddleware")


def find_tools_of_agent_being_built(own: object) -> list[Any] | None:
    """Return the tools of the agent that this thread is building, without those of the middleware ``own``.

    None if unknown.
    """
    frame = _find_create_agent_frame(own)
    if frame is None:
        return None
    agent_tools: Any = frame.f_locals.get("tools")
    other_tools = [
        item
        for middleware in find_middleware_of_agent_being_built(own)
        if middleware is not own
        for item in getattr(middleware, "tools", None) or ()
    ]
    return [*(cast("Collection[Any]", agent_tools) if isinstance(agent_tools, Collection) else ()), *other_tools]


def may_agent_get_more_tools(own: object) -> bool:
    """Return whether middleware of the agent may add tools that are unknown while the agent is built."""
    classes: list[type] = [type(item) for item in find_middleware_of_agent_being_built(own)]
    return any(_wraps_model_calls(cls) and not _is_framework_class(cls) for cls in classes)


def _wraps_model_calls(cls: type) -> bool:
    """Return whether a class wraps model calls itself, except its bases in the framework and this package."""
    names = ("wrap_model_call", "awrap_model_call")
    plugin_package = __name__.partition(".")[0]
    other_classes = takewhile(
        lambda base: base is not AgentMiddleware and _get_package(base) != plugin_package, cls.__mro__
    )
    return any(name in vars(base) for base in other_classes for name in names)


def _get_package(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _is_framework_class(cls: type) -> bool:
    """Return whether this is a class of LangChain, whose tools are registered; no decorated function."""
    is_framework_class = _get_package(cls) in ("langchain", "deepagents")
    return is_framework_class and getattr(sys.modules.get(cls.__module__), cls.__name__, None) is cls


def find_middleware_of_agent_being_built(own: object) -> Sequence[Any]:
    """Return the middleware of the agent that this thread is building, which `create_agent` does not pass on.

    Found in the innermost frame whose ``middleware`` contains ``own``: `create_agent`, even if it is wrapped.
    """
    frame = _find_create_agent_frame(own)
    return () if frame is None else tuple(frame.f_locals["middleware"])


def _find_create_agent_frame(own: object) -> FrameType | None:
    frame = inspect.currentframe()
    while frame is not None:
        middleware: Any = frame.f_locals.get("middleware")
        # `create_agent` accepts any collection.
        if isinstance(middleware, Collection) and any(item is own for item in cast("Collection[Any]", middleware)):
            return frame
        frame = frame.f_back
    return None


Result = ToolMessage | Command[Any]
ResultT = TypeVar("ResultT")
Handler = Callable[[ToolCallRequest], Any]

_MAX_PREPARED_TOOLS = 32


class HandlerToolCaller:
    """Runs nested calls as the agent does: through later middleware and the tool node."""

    def __init__(
        self,
        request: ToolCallRequest,
        handler: Handler,
        limits: NestedCallLimits | None = None,
        may_be_answered: Callable[[], bool] = lambda: True,
    ) -> None:
        self._request = request
        self._handler = handler
        self.limits = limits
        self.may_be_intercepted = may_be_answered
        self.runtime = cast("Any", request).runtime

    def call(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """See `ToolCaller.call`."""
        return self._handler(self._make_nested_request(tool, call, config))

    async def acall(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """See `ToolCaller.acall`."""
        return await self._handler(self._make_nested_request(tool, call, config))

    def make_review_request(self, call: ToolCall, config: RunnableConfig | None = None) -> ToolCallRequest:
        """Return a request for a review of a nested call, without its tool."""
        return self._make_nested_request(None, call, self.runtime.config if config is None else config)

    def _make_nested_request(self, tool: BaseTool | None, call: ToolCall, config: RunnableConfig) -> ToolCallRequest:
        outer_request = cast("Any", self._request)
        state = get_state_with_nested_writes(config, outer_request.state)
        runtime = dataclasses.replace(outer_request.runtime, tool_call_id=call["id"], config=config, state=state)
        return dataclasses.replace(outer_request, tool_call=call, tool=tool, state=state, runtime=runtime)


class SurfaceMiddleware(AgentMiddleware[Any, Any, Any]):
    """Replaces the agent's tools with those of a surface, except direct tools."""

    state_schema = CodeModeState

    def __init__(
        self,
        settings: SurfaceMiddlewareSettings,
        keep: Any,
        approve: ApprovalRules | None,
        interrupt_mode: InterruptMode | None,
        program_tools: ProgramToolSelector | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        self._selection = AgentToolSelection(program_tools, keep, settings)
        self._approvals = ApprovalPolicy(approve, interrupt_mode)
        self._approvals.reject_rules_for_non_program_tools(
            self._selection.keep_option_names,
            settings.is_surface_tool_name,
            settings.is_callable_name,
            settings.keep_option,
        )
        self._step_tools = StepToolRecorder()
        self._rule_names = RuleNameChecker(self._describe_unmatched_rules)
        self._surfaces = SurfaceCache(self._make_surface)
        self._prepared_tools: OrderedDict[int, tuple[BaseTool, PreparedTool]] = OrderedDict()
        self._lock = create_fork_safe_lock()
        self._inspection_lock = create_fork_safe_lock()
        # By the agent's tool node. Nothing else is kept: tools may refer to the agent, which would never be freed.
        self._limits: weakref.WeakKeyDictionary[Any, list[Limit]] = weakref.WeakKeyDictionary()
        # Registered with the agent; each call replaces them by tools over the agent's tools.
        self._surface_tools = {tool.name: tool for tool in self._make_surface([]).build_tools()}

    @abstractmethod
    def _make_surface(self, tools: Sequence[BaseTool]) -> Surface:
        """Return a surface for these tools."""

    @abstractmethod
    def _make_surface_tool(self, surface: Surface, request: ToolCallRequest, caller: ToolCaller) -> BaseTool:
        """Return the called surface tool, whose nested calls ``caller`` runs."""

    @abstractmethod
    def _make_refusal_message(self, request: ToolCallRequest, names: set[str]) -> ToolMessage | None:
        """Return the message for a direct call that is not allowed; None if others may run it."""

    def _list_model_only_names_and_reject_rules(self, tools: Iterable[Any]) -> Collection[str]:  # noqa: ARG002 - most surfaces leave none
        """Return the names of an agent's tools that only the model can call. Raises `ValueError`."""
        return ()

    def _list_names_shared_with_surface(self, tools: Iterable[Any]) -> Collection[str]:  # noqa: ARG002 - most surfaces refuse them
        """Return the names of program tools that equal those of surface tools."""
        return ()

    @InstanceOnlyProperty
    def tools(self) -> Sequence[BaseTool]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tools that this middleware adds. Read while the agent is built, so names are checked here."""
        reject_second_surface(
            [
                middleware.settings
                for middleware in find_middleware_of_agent_being_built(self)
                if isinstance(middleware, SurfaceMiddleware)
            ]
        )
        agent_tools = find_tools_of_agent_being_built(self)
        if agent_tools is not None:
            self._reject_name_conflicts(agent_tools)
            if not may_agent_get_more_tools(self):
                self._selection.require_names_among(list_tool_names(agent_tools))
                self._rule_names.require_existing_names(
                    list_tool_names(agent_tools), self._select_program_tools(select_non_provider_tools(agent_tools))
                )
            self._check_rules_and_list_direct_only_names(agent_tools)
            self._list_model_only_names_and_reject_rules(agent_tools)
        return [*self._surface_tools.values()]

    def _inspect_agent_and_adopt_reviews(self, config: RunnableConfig) -> tuple[Sequence[BaseTool], Sequence[Limit]]:
        """Inspect the running agent once: adopt reviews, and check that other middleware sees nested calls.

        Returns its tools and call limits, none outside an agent. Raises `ValueError` for middleware that would not see
        nested calls that it must see, and `UnknownVersionError` if that cannot be determined.
        """
        node_context = get_node_context(config)
        if node_context is None:
            return (), ()
        with self._inspection_lock:
            tool_node = next(
                (candidate for candidate in node_context.find_tool_nodes() if candidate in self._limits), None
            )
            if tool_node is None:
                tool_node, agent = node_context.find_tool_node_and_agent_parts(self)
                self._check_agent_and_adopt_reviews(agent)
                self._limits[tool_node] = find_call_limits(agent.middleware)
            return [*tool_node.tools_by_name.values()], self._limits[tool_node]

    def _check_agent_and_adopt_reviews(self, agent: AgentParts) -> None:
        reject_second_surface(
            [middleware.settings for middleware in agent.middleware if isinstance(middleware, SurfaceMiddleware)]
        )
        direct_names = {
            *self._surface_tools,
            *self._check_rules_and_list_direct_only_names(agent.tools),
            *self._list_model_only_names_and_reject_rules(agent.tools),
        }
        direct_names.difference_update(self._list_names_shared_with_surface(agent.tools))
        if self._approvals.adopt_review_rules(
            check_order_and_collect_review_rules(self, agent.middleware, direct_names, self.settings)
        ):
            self._surfaces.clear()  # they have other rules
        warn_about_unreviewed_sub_agents(
            agent.middleware, self._approvals.may_need_approval, self.settings, SurfaceMiddleware
        )

    def _check_rules_and_list_direct_only_names(self, tools: Sequence[Any]) -> Collection[str]:
        """Return the names that only the model calls. Raises `ValueError` for rules about direct tools."""
        places_by_name = {
            tool.name: self._selection.find_tool_routes(tool)
            for tool in select_non_provider_tools(tools)
            if not self._is_surface_tool(tool)
        }
        self._approvals.reject_rules_for_direct_tools([name for name, tool in places_by_name.items() if tool.directly])
        # Unknown tools are judged by name: reviews of tools that programs call too must apply to programs.
        return self._selection.direct_only_names.union(places_by_name) - {
            name for name, tool in places_by_name.items() if tool.in_programs
        }

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Replace the tools of the request; return the final message, without the model, if a limit ended the run."""
        model_request, update, end_message = self._prepare_model_call(request)
        return _add_state_update(end_message or handler(model_request), update)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Replace the tools of the request."""
        model_request, update, end_message = await self._run_off_loop_if_slow(
            request.tools, partial(self._prepare_model_call, request)
        )
        return _add_state_update(end_message or await handler(model_request), update)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Result:
        """Run a program; pass calls of kept tools on, and refuse all others."""
        checked = self._prepare_or_refuse_tool_call(request, handler)
        return checked if isinstance(checked, ToolMessage) else handler(checked)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Result:
        """Run a program; pass calls of kept tools on, and refuse all others."""
        check_call = partial(self._prepare_or_refuse_tool_call, request, handler)
        is_surface_tool = request.tool_call["name"] in self._surface_tools
        checked = (
            await self._run_off_loop_if_slow(self._find_registered_and_step_tools(request)[1], check_call)
            if is_surface_tool
            else check_call()
        )
        return checked if isinstance(checked, ToolMessage) else await handler(checked)

    async def _run_off_loop_if_slow(self, tools: Iterable[Any], function: Callable[[], ResultT]) -> ResultT:
        """Call a function on the event loop if the surface for these tools exists, else in a thread.

        Creating one takes some milliseconds for ten tools, and a second for a thousand.
        """
        program_tools = self._select_program_tools(tool for tool in tools if isinstance(tool, BaseTool))
        return (
            function()
            if self._make_surface_key(program_tools) in self._surfaces
            else await _run_in_dedicated_thread(function)
        )

    def _prepare_model_call(
        self, request: ModelRequest[Any]
    ) -> tuple[ModelRequest[Any], dict[str, Any], AIMessage | None]:
        """Return the model request, a state update, and the final message if a limit ended the run."""
        config = ensure_config()
        registered, limits = self._inspect_agent_and_adopt_reviews(config)
        model_request, update = self._make_model_request_and_record_step(request, registered)
        state = get_graph_state(config, request.state)
        update = {**update, **make_call_count_update(state, limits)}
        if (end_message := get_limit_end_message(state)) is None:
            return model_request, update, None
        return model_request, {**update, END_CHANNEL: None}, AIMessage(end_message)

    def _make_model_request_and_record_step(
        self, request: ModelRequest[Any], registered: Iterable[BaseTool]
    ) -> tuple[ModelRequest[Any], dict[str, Any]]:
        self._reject_name_conflicts(request.tools)
        program_tools = self._select_program_tools(tool for tool in request.tools if isinstance(tool, BaseTool))
        surface = self._get_or_create_surface(program_tools)
        self._rule_names.warn_once_about_unmatched_names(list_tool_names([*registered, *request.tools]), program_tools)
        direct_tools = [
            tool
            for tool in request.tools
            if not isinstance(tool, BaseTool) or self._is_direct_or_visible(tool, surface)
        ]
        model_request = request.override(tools=[*direct_tools, *self._build_tools(surface)])
        registered_names = {tool.name for tool in registered if not self._is_surface_tool(tool)}
        return model_request, cast("Any", self._step_tools.record_step(program_tools, direct_tools, registered_names))

    def _bind_surface_tool(self, request: ToolCallRequest, handler: Handler) -> ToolCallRequest:
        registered, program_tools = self._find_registered_and_step_tools(request)
        self._rule_names.require_existing_names({*registered, *(tool.name for tool in program_tools)}, program_tools)
        surface, config = self._get_or_create_surface(program_tools), _get_config(request)
        (_, limit_middleware), node_context = self._inspect_agent_and_adopt_reviews(config), get_node_context(config)
        limits = (
            NestedCallLimits(limit_middleware, node_context, get_graph_state(config, request.state))
            if node_context is not None and limit_middleware
            else None
        )
        caller = cast(
            "ToolCaller",
            HandlerToolCaller(request, handler, limits, partial(self._has_other_interceptors, node_context)),
        )
        return request.override(tool=self._make_surface_tool(surface, request, caller))

    def _has_other_interceptors(self, node_context: NodeContext | None) -> bool:
        """Return whether other middleware wraps tool calls, and may answer them."""
        if node_context is None:
            return True
        default_wrap: Any = getattr(AgentMiddleware, "wrap_tool_call", None)
        other_middleware: Iterator[Any] = (
            item for item in node_context.find_tool_node_and_agent_parts(self)[1].middleware if item is not self
        )
        return any(
            getattr(cast("Any", type(item)), "wrap_tool_call", default_wrap) is not default_wrap
            for item in other_middleware
        )

    def _describe_unmatched_rules(self, valid_names: Collection[str], program_tools: Sequence[BaseTool]) -> list[str]:  # noqa: ARG002
        """See `DescribeUnknownRules`."""
        return self._approvals.describe_unmatched_rules(valid_names)

    def _build_tools(self, surface: Surface) -> Sequence[BaseTool]:
        """Return the surface tools for the model."""
        return surface.build_tools()

    def _find_registered_and_step_tools(self, request: ToolCallRequest) -> tuple[dict[str, BaseTool], list[BaseTool]]:
        """Return the agent's tools by name, and the program tools of its last step."""
        registered = {tool.name: tool for tool in cast("Any", request).runtime.tools if not self._is_surface_tool(tool)}
        return registered, self._select_program_tools(self._step_tools.list_callable_tools(request, registered))

    def _select_program_tools(self, tools: Iterable[BaseTool]) -> list[BaseTool]:
        return [
            tool
            for tool in tools
            if not self._is_surface_tool(tool) and self._selection.find_tool_routes(tool).in_programs
        ]

    def _is_surface_tool(self, tool: Any) -> bool:
        return isinstance(tool, SurfaceTool) and any(map(tool.is_same_tool, self._surface_tools.values()))

    def _may_be_called_directly(self, name: str, request: ToolCallRequest) -> bool:
        """Return whether the model may call a tool directly, by its registration or by this call's tool."""
        registered = next((tool for tool in cast("Any", request).runtime.tools if tool.name == name), None)
        request_tool = request.tool if request.tool is not None and request.tool.name == name else None
        return self._selection.may_be_called_directly(name, registered or request_tool)

    def _is_direct_or_visible(self, tool: BaseTool, surface: Surface) -> bool:
        return self._selection.find_tool_routes(tool).directly or tool.name in surface.list_visible_names()

    def _reject_name_conflicts(self, tools: Iterable[Any]) -> None:
        for tool in tools:
            if not self._is_surface_tool(tool) and self.settings.is_surface_tool_name(
                name := get_tool_name(tool) or ""
            ):
                raise ValueError(self.settings.name_conflict_message.format(name=repr(name)))

    def _may_model_call(self, names: Collection[str], request: ToolCallRequest) -> bool:
        """Return whether the model may call tools of these names directly."""
        return all(self._may_be_called_directly(name, request) for name in names)

    def _prepare_or_refuse_tool_call(self, request: ToolCallRequest, handler: Handler) -> ToolCallRequest | ToolMessage:
        """Return the request to run, or the message for a call that is not allowed."""
        self._inspect_agent_and_adopt_reviews(_get_config(request))
        name, tool = request.tool_call["name"], request.tool
        if name in self._surface_tools:
            return self._bind_surface_tool(request, handler)
        # Earlier middleware may have replaced the tool.
        names = {name, name if tool is None else tool.name}
        if self._may_model_call(names, request):
            if names == {name} and self._approvals.is_reviewed_by_middleware(name):
                return request  # the review has seen the model's direct call
            annotations = {} if tool is None else get_annotations(tool)
            may_need_approval = any(self._approvals.may_need_approval(name, annotations) for name in names)
            return self._prepare_or_refuse_direct_call(request, names) if may_need_approval else request
        return self._make_refusal_message(request, names) or request

    def _prepare_or_refuse_direct_call(
        self, request: ToolCallRequest, names: Collection[str]
    ) -> ToolCallRequest | ToolMessage:
        """Return a kept tool's call with exactly the values that the approval function got, or a refusal."""
        call, tool = request.tool_call, request.tool
        args: dict[str, Any] = dict(call["args"])
        validated_tool = tool
        if tool is not None and not ProgramTool.is_callable_name(tool.name):
            validated_tool = tool.model_copy(update={"name": "tool"})
        if validated_tool is not None:
            try:
                validated = self._get_or_prepare_tool(validated_tool).validate_input(args)
            except CodeModeToolError as error:
                return self._make_error_message(request, error.message)
            args = validated.json_value
            stand_in = OutputCapture(cast("BaseTool", tool), cast("Any", request).runtime.config, validated.value).tool
            request = request.override(tool=stand_in, tool_call=make_tool_call(call["name"], args, call["id"] or ""))
        annotations = {} if tool is None else get_annotations(tool)
        if not any(self._approvals.call_needs_approval(name, dict(args), annotations) for name in names):
            return request
        reason = f"needs approval for this call: only calls from {self.settings.program_noun} can wait for it"
        return self._make_error_message(request, f"{call['name']} {reason}")

    def _make_error_message(self, request: ToolCallRequest, text: str) -> ToolMessage:
        # An agent ends after a return_direct tool; this message must go to the model.
        ends_run = request.tool is not None and request.tool.return_direct
        name = next(iter(self._surface_tools)) if ends_run else request.tool_call["name"]
        return ToolMessage(text, name=name, tool_call_id=request.tool_call["id"] or "", status="error")

    def _get_or_prepare_tool(self, tool: BaseTool) -> PreparedTool:
        """Return a prepared tool for validation, cached by tool."""
        with self._lock:
            entry = self._prepared_tools.get(id(tool))
            if entry is None or entry[0] is not tool:
                entry = self._prepared_tools[id(tool)] = (
                    tool,
                    PreparedTool.from_tool(convert_tool(tool, _never_execute)),
                )
                while len(self._prepared_tools) > _MAX_PREPARED_TOOLS:
                    self._prepared_tools.popitem(last=False)
            return entry[1]

    def _get_or_create_surface(self, program_tools: Sequence[BaseTool]) -> Surface:
        return self._surfaces.get_or_create(self._make_surface_key(program_tools), program_tools)

    def _make_surface_key(self, program_tools: Iterable[BaseTool]) -> tuple[Any, ...]:
        # The hints of a tool may change.
        get_declared = get_annotations if self._approvals.uses_declared_hints else _return_no_annotations
        return tuple((id(tool), *sorted(get_declared(tool).items())) for tool in program_tools)


def _add_state_update(response: Any, update: dict[str, Any]) -> ExtendedModelResponse[Any]:
    response = ModelResponse(result=[response]) if isinstance(response, BaseMessage) else response
    return ExtendedModelResponse(model_response=response, command=Command(update=update))


def _get_config(request: ToolCallRequest) -> RunnableConfig:
    return cast("Any", request).runtime.config


def _return_no_annotations(_tool: BaseTool) -> dict[str, Any]:
    return {}


def _never_execute() -> None:
    raise NotImplementedError


async def _run_in_dedicated_thread(function: Callable[[], ResultT]) -> ResultT:
    """Call a function in a new thread, independent of busy thread pools."""
    with_context = partial(copy_context().run, function)
    executor = ThreadPoolExecutor(1)
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, with_context)
    finally:
        executor.shutdown(wait=False)
