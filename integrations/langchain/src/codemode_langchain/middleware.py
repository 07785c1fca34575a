"""Code mode as middleware of an agent: the model sees one tool, nested calls go on through the agent's handlers."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import BaseMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from codemode import CodeModeOptions, CodeModeToolError, WorkerPool
from codemode.plugins import can_be_called

from .approvals import ApprovalRules, Approvals
from .channels import state_now
from .conversion import Capture, tool_call
from .neighbours import refuse_blind_neighbours, tools_beside, warn_of_sub_agents
from .nested import Caller
from .shown_tools import CodeModeState, ShownTools, name_of, shown_to
from .tool import NAME, CodeModeTool, Face, for_agents

Result = ToolMessage | Command[Any]
Handler = Callable[[ToolCallRequest], Any]

_MAX_FACES = 32


class HandlerCaller:
    """Makes nested calls as the agent makes its own: through the middleware listed later, and the tool node."""

    def __init__(self, request: ToolCallRequest, handler: Handler) -> None:
        self._request = request
        self._handler = handler

    def call(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """See `Caller.call`."""
        return self._handler(self._nested(tool, call, config))

    async def acall(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """See `Caller.acall`."""
        return await self._handler(self._nested(tool, call, config))

    def _nested(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> ToolCallRequest:
        outer = cast("Any", self._request)
        state = state_now(config, outer.state)
        runtime = dataclasses.replace(outer.runtime, tool_call_id=call["id"], config=config, state=state)
        return dataclasses.replace(outer, tool_call=call, tool=tool, state=state, runtime=runtime)


class CodeModeMiddleware(AgentMiddleware[Any, Any, Any]):
    """Shows the model ``codeMode`` in place of the agent's tools, except those named in ``keep``.

    ``approve`` is as in `create_code_mode_tool`. List it before middleware that is to see the nested calls. Raises
    `ValueError` for wrong options and for a tool in both ``keep`` and ``approve`` now, and when the agent is built for
    other middleware that would not see the nested calls it gates, limits or stands in for.

    Programs may call what the model was shown in the same step, and the model may call nothing else by itself than
    what is kept: it is told to call it from a program. An ``approve`` that is a function is asked about calls of kept
    tools too, and those that it would have approved are refused, for only programs wait for a person.
    """

    state_schema = CodeModeState

    def __init__(
        self,
        *,
        options: CodeModeOptions | Mapping[str, Any] | None = None,
        keep: Collection[str] = (),
        approve: ApprovalRules | None = None,
        pool: WorkerPool | None = None,
    ) -> None:
        super().__init__()
        self._options = for_agents(options, has_pool=pool is not None)
        self._keep = _names(keep)
        self._approvals = Approvals(approve)
        self._approvals.refuse_kept(self._keep)
        self._shown_tools = ShownTools()
        self._pool = pool
        self._faces: OrderedDict[tuple[int, ...], Face] = OrderedDict()
        self._lock = threading.Lock()
        # Known to the agent by its name; what it runs depends on the agent's tools.
        self._registered = CodeModeTool(Face([], self._options, self._approvals, pool))

    @property
    def tools(self) -> Sequence[BaseTool]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tools that the agent gets from here. Read while it is built: the moment to look at its neighbours."""
        refuse_blind_neighbours(self, self._keep, CodeModeMiddleware)
        self._refuse_others_of_its_name(tools_beside(self))
        warn_of_sub_agents(self, self._approvals.may_ask, CodeModeMiddleware)
        return [self._registered]

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Show the model one tool."""
        shown, update = self._shown(request)
        return _with_update(handler(shown), update)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Show the model one tool."""
        shown, update = self._shown(request)
        return _with_update(await handler(shown), update)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Result:
        """Run a program; leave calls of kept tools alone, and refuse those of all others."""
        judged = self._judged(request, handler)
        return judged if isinstance(judged, ToolMessage) else handler(judged)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Result:
        """Run a program; leave calls of kept tools alone, and refuse those of all others."""
        judged = self._judged(request, handler)
        return judged if isinstance(judged, ToolMessage) else await handler(judged)

    def _shown(self, request: ModelRequest[Any]) -> tuple[ModelRequest[Any], dict[str, Any]]:
        self._refuse_others_of_its_name(request.tools)
        native = [one for one in request.tools if not isinstance(one, BaseTool) or self._is_kept(one.name)]
        programs = self._for_programs(one for one in request.tools if isinstance(one, BaseTool))
        shown = request.override(tools=[*native, CodeModeTool(self._face(programs))])
        return shown, cast("Any", self._shown_tools.note(programs, native))

    def _bound(self, request: ToolCallRequest, handler: Handler) -> ToolCallRequest:
        registered = {one.name: one for one in cast("Any", request).runtime.tools}
        programs = self._for_programs(self._shown_tools.callable_tools(request, registered))
        self._approvals.require_known({*registered, *(one.name for one in programs)})
        return request.override(
            tool=CodeModeTool(self._face(programs), cast("Caller", HandlerCaller(request, handler)))
        )

    def _for_programs(self, tools: Iterable[BaseTool]) -> list[BaseTool]:
        return [one for one in tools if one.name != NAME and not self._is_kept(one.name)]

    def _is_kept(self, name: str) -> bool:
        # What no program can call stays with the model.
        return name in self._keep or not can_be_called(name)

    def _refuse_others_of_its_name(self, tools: Iterable[Any]) -> None:
        for one in tools:
            is_own = isinstance(one, CodeModeTool) and one.is_like(self._registered)
            if not is_own and name_of(one) == NAME:
                raise ValueError(f"another tool of the agent is called {NAME!r} too: give it another name")

    def _judged(self, request: ToolCallRequest, handler: Handler) -> ToolCallRequest | ToolMessage:
        """Return the call that is made, or what the model is told instead of one that it may not make by itself."""
        name, tool = request.tool_call["name"], request.tool
        if name == NAME:
            return self._bound(request, handler)
        # Middleware listed before may have put another tool in its place.
        names = {name, name if tool is None else tool.name}
        if all(map(self._is_kept, names)):
            return self._allowed(request, names) if any(map(self._approvals.may_ask, names)) else request
        return self._refused(request, names) or request

    def _refused(self, request: ToolCallRequest, names: Collection[str]) -> ToolMessage | None:
        name, tool = request.tool_call["name"], request.tool
        shown, gated = shown_to(request), any(map(self._approvals.may_ask, names))
        if not gated and shown is not None and names <= {one for one in shown["native"] if not self._is_kept(one)}:
            # A provider's own tool, whose calls other middleware or the tool node serves.
            return None
        in_programs = tool is not None if shown is None else name in shown["programs"]
        if tool is None and not gated and not in_programs:
            # Nobody here knows it: middleware listed later may, else the tool node says what there is.
            return None
        if in_programs:
            return _error(request, f"{name} is not called directly: call it from a program, as tools.{name}(input)")
        return _error(request, f"{name} is not among the tools of this step")

    def _allowed(self, request: ToolCallRequest, names: Collection[str]) -> ToolCallRequest | ToolMessage:
        """Return a kept tool's call with the very values that the function was asked about."""
        call, tool = request.tool_call, request.tool
        args: dict[str, Any] = dict(call["args"])
        named = tool if tool is None or can_be_called(tool.name) else tool.model_copy(update={"name": "tool"})
        if named is not None and (known := self._face([named]).awaiting.catalog.get(named.name)) is not None:
            try:
                validated = known.validate_input(args)
            except CodeModeToolError as error:
                return _error(request, error.message)
            args = validated.json_value
            stand_in = Capture(cast("BaseTool", tool), cast("Any", request).runtime.config, validated.value).tool
            request = request.override(tool=stand_in, tool_call=tool_call(call["name"], args, call["id"] or ""))
        if not any(self._approvals.asks_about(one, dict(args)) for one in names):
            return request
        why = "needs a person's approval for this: only calls from programs can wait for one"
        return _error(request, f"{call['name']} {why}")

    def _face(self, wrapped: Sequence[BaseTool]) -> Face:
        key = tuple(id(one) for one in wrapped)
        with self._lock:
            face = self._faces.get(key)
            if face is None:
                face = Face(wrapped, self._options, self._approvals, self._pool)
                self._faces[key] = face
                while len(self._faces) > _MAX_FACES:
                    self._faces.popitem(last=False)
            self._faces.move_to_end(key)
            return face


def _names(keep: Any) -> frozenset[str]:
    names = [keep] if isinstance(keep, str) else keep
    if not isinstance(names, Collection) or not all(isinstance(name, str) for name in cast("Collection[Any]", names)):
        raise ValueError(f"keep must be names of tools, got {keep!r}")
    if NAME in cast("Collection[str]", names):
        raise ValueError(f"keep names {NAME!r}, which is shown in the place of all others")
    return frozenset(cast("Collection[str]", names))


def _with_update(given: Any, update: dict[str, Any]) -> ExtendedModelResponse[Any]:
    response = ModelResponse(result=[given]) if isinstance(given, BaseMessage) else given
    return ExtendedModelResponse(model_response=response, command=Command(update=update))


def _error(request: ToolCallRequest, text: str) -> ToolMessage:
    # An agent ends after a tool whose results go to the user; this one goes to the model.
    ends = request.tool is not None and request.tool.return_direct
    name = NAME if ends else request.tool_call["name"]
    return ToolMessage(text, name=name, tool_call_id=request.tool_call["id"] or "", status="error")
