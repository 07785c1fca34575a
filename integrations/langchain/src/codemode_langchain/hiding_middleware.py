"""Middleware that shows a model other tools in place of an agent's own."""

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
from codemode.plugins import PreparedTool, forkable_lock

from .approvals import ApprovalRules, Approvals, Caller, InterruptMode
from .conversion import Capture, annotations_of, convert, tool_call
from .faces import Face, KnownFaces, OuterTool, as_tools
from .graph_state import graph_state, state_now
from .limits import END, Limit, Limits, end_in, limits_among, passed_on
from .pregel import AgentParts, Inside, inside
from .tool_selection import (
    Chosen,
    CodeModeState,
    HidingWords,
    InPrograms,
    ShownTools,
    name_of,
    names_of,
    refuse_second,
    reviewed_by_neighbours,
    warn_of_sub_agents,
)

Unknown: TypeAlias = Callable[[Collection[str], Sequence[BaseTool]], list[str]]
"""Returns what is said of each rule about none of the tools of these names, of which programs call those given."""

_log = logging.getLogger("codemode.tools")


class RuleNames:
    """Looks whether the rules of a middleware are about tools that its agent has."""

    def __init__(self, unknown: Unknown) -> None:
        self._unknown = unknown
        self._has_looked = False

    def require(self, there: Collection[str], in_programs: Sequence[BaseTool]) -> None:
        """Raise `ValueError` for a rule about none of these tools."""
        for said in self._unknown(there, in_programs):
            raise ValueError(said)

    def warn(self, there: Collection[str], in_programs: Sequence[BaseTool]) -> None:
        """Log in the first step alone which rules are about none of its tools: a later one may have others."""
        if self._has_looked:
            return
        self._has_looked = True
        for said in self._unknown(there, in_programs):
            _log.warning("%s A program that begins while there is no such tool ends the run with this error.", said)


# Nothing that has to hold depends on it: who sees which calls is looked at in the running agent.


class OfAnObject(property):
    """The tools of a middleware; `create_agent` that is given its class goes through those of the class first."""

    def __iter__(self) -> Iterator[Any]:
        """Say what is wrong, in place of Python, which has no name for it."""
        raise TypeError("an agent's middleware are objects: write CodeModeMiddleware() in place of CodeModeMiddleware")


def tools_beside(own: object) -> list[Any] | None:
    """Return the tools of the agent that is being built in this thread, but for those of its own middleware ``own``.

    None where nobody can tell.
    """
    frame = _frame_with(own)
    if frame is None:
        return None
    given: Any = frame.f_locals.get("tools")
    others = [
        one
        for middleware in listed_with(own)
        if middleware is not own
        for one in getattr(middleware, "tools", None) or ()
    ]
    return [*(cast("Collection[Any]", given) if isinstance(given, Collection) else ()), *others]


def may_get_others(own: object) -> bool:
    """Tell whether middleware of the agent may give its model tools that nobody knows while it is built."""
    kinds: list[type] = [type(one) for one in listed_with(own)]
    return any(_wraps_models(kind) and not _is_published(kind) for kind in kinds)


def _wraps_models(kind: type) -> bool:
    """Tell whether a class may change requests, in what it adds to the framework's own or to one of this package."""
    names = ("wrap_model_call", "awrap_model_call")
    ours = __name__.partition(".")[0]
    theirs = takewhile(lambda one: one is not AgentMiddleware and _package_of(one) != ours, kind.__mro__)
    return any(name in vars(one) for one in theirs for name in names)


def _package_of(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _is_published(kind: type) -> bool:
    """Tell whether it is one of LangChain's own, whose tools are registered; a decorated function is none."""
    is_theirs = _package_of(kind) in ("langchain", "deepagents")
    return is_theirs and getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind


def listed_with(own: object) -> Sequence[Any]:
    """Return the middleware of the agent that is being built in this thread: `create_agent` tells them nothing.

    The innermost function with a ``middleware`` that holds our own: `create_agent` itself, whatever was put around it.
    """
    frame = _frame_with(own)
    return () if frame is None else tuple(frame.f_locals["middleware"])


def _frame_with(own: object) -> FrameType | None:
    frame = inspect.currentframe()
    while frame is not None:
        listed: Any = frame.f_locals.get("middleware")
        # Any collection does for `create_agent`.
        if isinstance(listed, Collection) and any(one is own for one in cast("Collection[Any]", listed)):
            return frame
        frame = frame.f_back
    return None


# Knows no surface of the core.

Result = ToolMessage | Command[Any]
ResultT = TypeVar("ResultT")
Handler = Callable[[ToolCallRequest], Any]

_MAX_KNOWN = 32


class HandlerCaller:
    """Makes nested calls as the agent makes its own: through the middleware listed later, and the tool node."""

    def __init__(
        self,
        request: ToolCallRequest,
        handler: Handler,
        limits: Limits | None = None,
        may_be_answered: Callable[[], bool] = lambda: True,
    ) -> None:
        self._request = request
        self._handler = handler
        self.limits = limits
        self.may_be_answered = may_be_answered
        self.runtime = cast("Any", request).runtime

    def call(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """See `Caller.call`."""
        return self._handler(self._nested(tool, call, config))

    async def acall(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """See `Caller.acall`."""
        return await self._handler(self._nested(tool, call, config))

    def request_of(self, call: ToolCall, config: RunnableConfig | None = None) -> ToolCallRequest:
        """Return a nested call as a review of the model's calls is given one: without its tool."""
        return self._nested(None, call, self.runtime.config if config is None else config)

    def _nested(self, tool: BaseTool | None, call: ToolCall, config: RunnableConfig) -> ToolCallRequest:
        outer = cast("Any", self._request)
        state = state_now(config, outer.state)
        runtime = dataclasses.replace(outer.runtime, tool_call_id=call["id"], config=config, state=state)
        return dataclasses.replace(outer, tool_call=call, tool=tool, state=state, runtime=runtime)


class HidingMiddleware(AgentMiddleware[Any, Any, Any]):
    """Shows the model tools that run programs in place of the agent's own, except those that stay with it."""

    state_schema = CodeModeState

    def __init__(
        self,
        words: HidingWords,
        keep: Any,
        approve: ApprovalRules | None,
        interrupt_mode: InterruptMode | None,
        programs: InPrograms | None = None,
    ) -> None:
        super().__init__()
        self.words = words
        self._chosen = Chosen(programs, keep, words)
        self._approvals = Approvals(approve, interrupt_mode)
        self._approvals.refuse_kept(self._chosen.kept_names, words.is_own, words.is_callable, words.keep)
        self._shown_tools = ShownTools()
        self._rule_names = RuleNames(self._unknown_rules)
        self._faces = KnownFaces(self._made_face)
        self._known: OrderedDict[int, tuple[BaseTool, PreparedTool]] = OrderedDict()
        self._lock = forkable_lock()
        self._look = forkable_lock()
        # Of each agent, by the node of its tools. Nothing else of it is kept: its tools may know the agent, which
        # then would never go.
        self._limits: weakref.WeakKeyDictionary[Any, list[Limit]] = weakref.WeakKeyDictionary()
        # Known to the agent by their names; what they run depends on the agent's tools.
        self._registered = {one.name: one for one in self._made_face([]).offered()}

    @abstractmethod
    def _made_face(self, tools: Sequence[BaseTool]) -> Face:
        """Return a surface over these tools."""

    @abstractmethod
    def _own_tool(self, face: Face, request: ToolCallRequest, caller: Caller) -> BaseTool:
        """Return the tool that is called, whose nested calls ``caller`` makes."""

    @abstractmethod
    def _refused(self, request: ToolCallRequest, names: set[str]) -> ToolMessage | None:
        """Return what the model is told that calls a tool by itself which it may not; None where others serve it."""

    def _seen_alone(self, tools: Iterable[Any]) -> Collection[str]:  # noqa: ARG002 - most surfaces leave none
        """Return the names of those of an agent's tools that stay with the model alone. Raises `ValueError`."""
        return ()

    def _called_alike(self, tools: Iterable[Any]) -> Collection[str]:  # noqa: ARG002 - most surfaces refuse them
        """Return the names of tools for programs that are called as the surface's own."""
        return ()

    @OfAnObject
    def tools(self) -> Sequence[BaseTool]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tools that the agent gets from here. Read while it is built: the moment for words about names."""
        refuse_second([one.words for one in listed_with(self) if isinstance(one, HidingMiddleware)])
        beside = tools_beside(self)
        if beside is not None:
            self._refuse_others_of_its_names(beside)
            if not may_get_others(self):
                self._chosen.require_known(names_of(beside))
                self._rule_names.require(names_of(beside), self._hidden(as_tools(beside)))
            self._only_direct(beside)
            self._seen_alone(beside)
        return [*self._registered.values()]

    def _look_around(self, config: RunnableConfig) -> tuple[Sequence[BaseTool], Sequence[Limit]]:
        """Look at the agent that runs, once: what its other middleware reviews, and whether that sees nested calls.

        Returns its tools and its limits, none outside of an agent. Raises `ValueError` for middleware that does not see
        what it is there to see, and `UnknownVersionError` where nobody can tell.
        """
        node = inside(config)
        if node is None:
            return (), ()
        with self._look:
            tool_node = next((one for one in node.tool_nodes() if one in self._limits), None)
            if tool_node is None:
                tool_node, agent = node.agent_of(self)
                self._take_in(agent)
                self._limits[tool_node] = limits_among(agent.listed)
            return [*tool_node.tools_by_name.values()], self._limits[tool_node]

    def _take_in(self, agent: AgentParts) -> None:
        refuse_second([one.words for one in agent.listed if isinstance(one, HidingMiddleware)])
        seen = {*self._registered, *self._only_direct(agent.tools), *self._seen_alone(agent.tools)}
        seen.difference_update(self._called_alike(agent.tools))
        if self._approvals.adopt(reviewed_by_neighbours(self, agent.listed, seen, self.words)):
            self._faces.forget()  # they were made by other rules
        warn_of_sub_agents(agent.listed, self._approvals.may_ask, self.words, HidingMiddleware)

    def _only_direct(self, beside: Sequence[Any]) -> Collection[str]:
        """Return the names that only the model calls. Raises `ValueError` for rules about what nobody asks about."""
        called = {one.name: self._chosen.places(one) for one in as_tools(beside) if not self._is_own(one)}
        self._approvals.refuse_direct([name for name, one in called.items() if one.directly])
        # Of a tool that is not known yet, its name must tell: a review of what programs call as well has to hold there.
        return self._chosen.alone_names.union(called) - {name for name, one in called.items() if one.in_programs}

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Show the model one tool."""
        shown, update, said = self._asked(request)
        return _with_update(said or handler(shown), update)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Show the model one tool."""
        shown, update, said = await self._aside(request.tools, partial(self._asked, request))
        return _with_update(said or await handler(shown), update)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Result:
        """Run a program; leave calls of kept tools alone, and refuse those of all others."""
        judged = self._judged(request, handler)
        return judged if isinstance(judged, ToolMessage) else handler(judged)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Result:
        """Run a program; leave calls of kept tools alone, and refuse those of all others."""
        judge = partial(self._judged, request, handler)
        is_own = request.tool_call["name"] in self._registered
        judged = await self._aside(self._called_from(request)[1], judge) if is_own else judge()
        return judged if isinstance(judged, ToolMessage) else await handler(judged)

    async def _aside(self, tools: Iterable[Any], work: Callable[[], ResultT]) -> ResultT:
        """Do work on the event loop where a surface over these tools is made, else in a thread, for it takes its time.

        Some milliseconds for ten tools, and a second for a thousand.
        """
        hidden = self._hidden(one for one in tools if isinstance(one, BaseTool))
        return work() if self._key(hidden) in self._faces else await _run_in_own_thread(work)

    def _asked(self, request: ModelRequest[Any]) -> tuple[ModelRequest[Any], dict[str, Any], AIMessage | None]:
        """Return what the model is asked, an update of the state, and what is said in its place after a last call."""
        config = ensure_config()
        registered, limits = self._look_around(config)
        shown, update = self._shown(request, registered)
        state = graph_state(config, request.state)
        update = {**update, **passed_on(state, limits)}
        if (said := end_in(state)) is None:
            return shown, update, None
        return shown, {**update, END: None}, AIMessage(said)

    def _shown(
        self, request: ModelRequest[Any], registered: Iterable[BaseTool]
    ) -> tuple[ModelRequest[Any], dict[str, Any]]:
        self._refuse_others_of_its_names(request.tools)
        hidden = self._hidden(one for one in request.tools if isinstance(one, BaseTool))
        face = self._face(hidden)
        self._rule_names.warn(names_of([*registered, *request.tools]), hidden)
        native = [one for one in request.tools if not isinstance(one, BaseTool) or self._stays(one, face)]
        shown = request.override(tools=[*native, *self._offered(face)])
        known = {one.name for one in registered if not self._is_own(one)}
        return shown, cast("Any", self._shown_tools.note(hidden, native, known))

    def _bound(self, request: ToolCallRequest, handler: Handler) -> ToolCallRequest:
        registered, hidden = self._called_from(request)
        self._rule_names.require({*registered, *(one.name for one in hidden)}, hidden)
        face, config = self._face(hidden), _config_of(request)
        (_, listed), node = self._look_around(config), inside(config)
        limits = Limits(listed, node, graph_state(config, request.state)) if node is not None and listed else None
        caller = cast("Caller", HandlerCaller(request, handler, limits, partial(self._has_others_around, node)))
        return request.override(tool=self._own_tool(face, request, caller))

    def _has_others_around(self, node: Inside | None) -> bool:
        """Tell whether other middleware wraps calls of tools, and may answer them itself."""
        if node is None:
            return True
        usual: Any = getattr(AgentMiddleware, "wrap_tool_call", None)
        others: Iterator[Any] = (one for one in node.agent_of(self)[1].listed if one is not self)
        return any(getattr(cast("Any", type(one)), "wrap_tool_call", usual) is not usual for one in others)

    def _unknown_rules(self, there: Collection[str], hidden: Sequence[BaseTool]) -> list[str]:  # noqa: ARG002
        """See `Unknown`."""
        return self._approvals.unknown(there)

    def _offered(self, face: Face) -> Sequence[BaseTool]:
        """Return the tools that are shown in place of the others."""
        return face.offered()

    def _called_from(self, request: ToolCallRequest) -> tuple[dict[str, BaseTool], list[BaseTool]]:
        """Return the agent's tools, and those that the last step of it hid."""
        registered = {one.name: one for one in cast("Any", request).runtime.tools if not self._is_own(one)}
        return registered, self._hidden(self._shown_tools.callable_tools(request, registered))

    def _hidden(self, tools: Iterable[BaseTool]) -> list[BaseTool]:
        return [one for one in tools if not self._is_own(one) and self._chosen.places(one).in_programs]

    def _is_own(self, one: Any) -> bool:
        return isinstance(one, OuterTool) and any(map(one.is_like, self._registered.values()))

    def _is_kept(self, name: str, request: ToolCallRequest) -> bool:
        """Tell whether the model may call a tool by itself, by what it is registered as, or comes as in this call."""
        registered = next((one for one in cast("Any", request).runtime.tools if one.name == name), None)
        called = request.tool if request.tool is not None and request.tool.name == name else None
        return self._chosen.is_kept(name, registered or called)

    def _stays(self, one: BaseTool, face: Face) -> bool:
        return self._chosen.places(one).directly or one.name in face.visible()

    def _refuse_others_of_its_names(self, tools: Iterable[Any]) -> None:
        for one in tools:
            if not self._is_own(one) and self.words.is_own(name := name_of(one) or ""):
                raise ValueError(self.words.taken.format(name=repr(name)))

    def _may_call(self, names: Collection[str], request: ToolCallRequest) -> bool:
        """Tell whether the model may call tools of these names by itself."""
        return all(self._is_kept(name, request) for name in names)

    def _judged(self, request: ToolCallRequest, handler: Handler) -> ToolCallRequest | ToolMessage:
        """Return the call that is made, or what the model is told instead of one that it may not make by itself."""
        self._look_around(_config_of(request))
        name, tool = request.tool_call["name"], request.tool
        if name in self._registered:
            return self._bound(request, handler)
        # Middleware listed before may have put another tool in its place.
        names = {name, name if tool is None else tool.name}
        if self._may_call(names, request):
            if names == {name} and self._approvals.is_reviewed(name):
                return request  # a tool that programs call too: this call was reviewed where the model made it
            declared = {} if tool is None else annotations_of(tool)
            may_ask = any(self._approvals.may_ask(one, declared) for one in names)
            return self._allowed(request, names) if may_ask else request
        return self._refused(request, names) or request

    def _allowed(self, request: ToolCallRequest, names: Collection[str]) -> ToolCallRequest | ToolMessage:
        """Return a kept tool's call with the very values that the function was asked about."""
        call, tool = request.tool_call, request.tool
        args: dict[str, Any] = dict(call["args"])
        named = tool
        if tool is not None and not ProgramTool.is_callable_name(tool.name):
            named = tool.model_copy(update={"name": "tool"})
        if named is not None:
            try:
                validated = self._prepared(named).validate_input(args)
            except CodeModeToolError as error:
                return self._error(request, error.message)
            args = validated.json_value
            stand_in = Capture(cast("BaseTool", tool), cast("Any", request).runtime.config, validated.value).tool
            request = request.override(tool=stand_in, tool_call=tool_call(call["name"], args, call["id"] or ""))
        declared = {} if tool is None else annotations_of(tool)
        if not any(self._approvals.asks_about(one, dict(args), declared) for one in names):
            return request
        why = f"needs a person's approval for this: only calls from {self.words.programs} can wait for one"
        return self._error(request, f"{call['name']} {why}")

    def _error(self, request: ToolCallRequest, text: str) -> ToolMessage:
        # An agent ends after a tool whose results go to the user; this one goes to the model.
        ends = request.tool is not None and request.tool.return_direct
        name = next(iter(self._registered)) if ends else request.tool_call["name"]
        return ToolMessage(text, name=name, tool_call_id=request.tool_call["id"] or "", status="error")

    def _prepared(self, tool: BaseTool) -> PreparedTool:
        """Return a tool made ready to validate, once for each."""
        with self._lock:
            known = self._known.get(id(tool))
            if known is None or known[0] is not tool:
                known = self._known[id(tool)] = tool, PreparedTool.of(convert(tool, _never))
                while len(self._known) > _MAX_KNOWN:
                    self._known.popitem(last=False)
            return known[1]

    def _face(self, hidden: Sequence[BaseTool]) -> Face:
        return self._faces.of(self._key(hidden), hidden)

    def _key(self, hidden: Iterable[BaseTool]) -> tuple[Any, ...]:
        # What tools declare of themselves may change in them.
        declared = annotations_of if self._approvals.are_declared else _nothing
        return tuple((id(one), *sorted(declared(one).items())) for one in hidden)


def _with_update(given: Any, update: dict[str, Any]) -> ExtendedModelResponse[Any]:
    response = ModelResponse(result=[given]) if isinstance(given, BaseMessage) else given
    return ExtendedModelResponse(model_response=response, command=Command(update=update))


def _config_of(request: ToolCallRequest) -> RunnableConfig:
    return cast("Any", request).runtime.config


def _nothing(_tool: BaseTool) -> dict[str, Any]:
    return {}


def _never() -> None:
    raise NotImplementedError


async def _run_in_own_thread(work: Callable[[], ResultT]) -> ResultT:
    """Run work in a thread that no tool can keep busy."""
    with_context = partial(copy_context().run, work)
    executor = ThreadPoolExecutor(1)
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, with_context)
    finally:
        executor.shutdown(wait=False)
