"""Code mode as middleware of an agent: the model sees one tool, nested calls go on through the agent's handlers."""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from langchain import agents
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain.agents.middleware.types import ModelRequest
from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from codemode import CodeModeOptions, WorkerPool

from .approvals import ApprovalRules, Approvals
from .nested import Caller
from .tool import NAME, CodeModeTool, Face, with_pauses

Result = ToolMessage | Command[Any]
Handler = Callable[[ToolCallRequest], Any]

_MAX_FACES = 32
_BUILDER = cast("Any", agents).create_agent.__code__


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
        outer = cast("Any", self._request).runtime
        runtime = dataclasses.replace(outer, tool_call_id=call["id"], config=config)
        return dataclasses.replace(self._request, tool_call=call, tool=tool, runtime=runtime)


class CodeModeMiddleware(AgentMiddleware[Any, Any, Any]):
    """Shows the model ``codeMode`` in place of the agent's tools, except those named in ``keep``.

    ``approve`` is as in `create_code_mode_tool`. List it before middleware that is to see the nested calls. Raises
    `ValueError` for wrong options now, and when the agent is built for a `HumanInTheLoopMiddleware` that would not see
    the nested calls it gates.
    """

    def __init__(
        self,
        *,
        options: CodeModeOptions | Mapping[str, Any] | None = None,
        keep: Collection[str] = (),
        approve: ApprovalRules | None = None,
        pool: WorkerPool | None = None,
    ) -> None:
        super().__init__()
        self._options = with_pauses(options)
        self._keep = frozenset([keep] if isinstance(keep, str) else keep)
        self._approvals = Approvals(approve)
        self._pool = pool
        self._faces: OrderedDict[tuple[int, ...], Face] = OrderedDict()
        self._lock = threading.Lock()
        # Known to the agent by its name; what it runs depends on the agent's tools.
        self._registered = CodeModeTool(Face([], self._options, self._approvals, pool))

    @property
    def tools(self) -> Sequence[BaseTool]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tools that the agent gets from here. Read while it is built: the moment to look at its neighbours."""
        _refuse_unseen_reviews(self, self._keep)
        return [self._registered]

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Show the model one tool."""
        return handler(self._shown(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Show the model one tool."""
        return await handler(self._shown(request))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Result:
        """Run a program; leave calls of kept tools alone."""
        return handler(self._bound(request, handler))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Result:
        """Run a program; leave calls of kept tools alone."""
        return await handler(self._bound(request, handler))

    def _shown(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        kept = [one for one in request.tools if not isinstance(one, BaseTool) or one.name in self._keep]
        face = self._face(one for one in request.tools if isinstance(one, BaseTool))
        return request.override(tools=[*kept, CodeModeTool(face)])

    def _bound(self, request: ToolCallRequest, handler: Handler) -> ToolCallRequest:
        if request.tool_call["name"] != NAME:
            return request
        face = self._face(cast("Any", request).runtime.tools)
        self._approvals.require_known(face.tools)
        return request.override(tool=CodeModeTool(face, cast("Caller", HandlerCaller(request, handler))))

    def _face(self, tools: Iterable[BaseTool]) -> Face:
        wrapped = [one for one in tools if one.name != NAME and one.name not in self._keep]
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


def _refuse_unseen_reviews(own: CodeModeMiddleware, keep: Collection[str]) -> None:
    listed = _middleware_being_built()
    place = next((index for index, one in enumerate(listed) if one is own), None)
    if place is None:
        return
    for index, one in enumerate(listed):
        if not isinstance(one, HumanInTheLoopMiddleware):
            continue
        gated = sorted(set(one.interrupt_on) - {NAME} - set(keep))
        if not gated:
            continue
        if getattr(cast("Any", one), "interrupt_mode", "batched") != "per_call":
            raise ValueError(
                f"HumanInTheLoopMiddleware gates {', '.join(gated)} in its batched mode, which never sees calls made by"
                " a program: they would run without approval. Give it interrupt_mode='per_call' and list it after"
                " CodeModeMiddleware, or use CodeModeMiddleware(approve=...) instead."
            )
        if index < place:
            raise ValueError(
                f"HumanInTheLoopMiddleware gates {', '.join(gated)} and is listed before CodeModeMiddleware, where it"
                " never sees calls made by a program: they would run without approval. List it after."
            )


def _middleware_being_built() -> Sequence[Any]:
    """Return the middleware of the agent that `create_agent` is building in this thread: it tells them nothing."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code is _BUILDER:
            return tuple(frame.f_locals["middleware"])
        frame = frame.f_back
    return ()
