"""What surfaces have in common for LangChain, and the surfaces that a middleware made."""

from __future__ import annotations

import inspect
import re
import secrets
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, tool
from pydantic import PrivateAttr

from codemode import CodeModeOptions, CodeModeTool, CodeModeToolError, ToolCallContext, WorkerPool
from codemode import Tool as ProgramTool
from codemode.plugins import (
    Listing,
    ToolSelection,
    configure_agent_options,
    forkable_lock,
    select_callable_tools,
)
from codemode.stores import StoreLike

from .approvals import Approvals, Caller, DirectCaller
from .arguments import Arguments, call_ids
from .content import message_content
from .conversion import ONLY_AWAITED, LangChainTool, annotations_of, convert, is_only_awaited
from .graph import digest, name_in_node
from .graph_state import one_result, write_earlier
from .pregel import is_in_node
from .questions import OuterCall
from .segments import Outcome, Segments

# Knows no middleware.

MAX_AGE_MS = 30 * 24 * 3_600_000
_tool_call_id: ContextVar[str | None] = ContextVar("tool_call_id", default=None)


@runtime_checkable
class Toolkit(Protocol):
    """A group of tools, such as LangChain's ``BaseToolkit``."""

    def get_tools(self) -> list[BaseTool]:
        """Return the tools."""
        ...


class Face:
    """A set of tools as a surface sees it: once for callers that block, once for callers that do not.

    ``before`` is an earlier one, with the same rules: what both have is converted once.
    """

    conversions: dict[int, tuple[LangChainTool, LangChainTool]]  # by the ids of the tools, which it holds

    def __init__(self, tools: Iterable[BaseTool], approvals: Approvals, before: Face | None = None) -> None:
        self.given = list(tools)  # also those that another of the same name hides: who knows a face by them keeps them
        self.tools = {one.name: one for one in self.given if self._can_be_called(one.name)}
        self.approvals = approvals
        made = {} if before is None else before.conversions
        self.conversions = {id(one): _as_it_is(one, made) or self._converted(one) for one in self.tools.values()}
        self._for_blocking = [one for one, _ in self.conversions.values()]
        self._for_awaiting = [one for _, one in self.conversions.values()]

    @property
    @abstractmethod
    def core(self) -> Any:
        """The tool of the core behind it, which has the options of its programs."""

    @abstractmethod
    def offered(self) -> Sequence[OuterTool]:
        """Return the tools that stand for the others, as a model is offered them."""

    def visible(self) -> frozenset[str]:
        """Return the names of the others that stay with the model all the same."""
        return frozenset()

    def _can_be_called(self, name: str) -> bool:
        return ProgramTool.is_callable_name(name)

    def _converted(self, one: BaseTool) -> tuple[LangChainTool, LangChainTool]:
        def run(arguments: Arguments, context: ToolCallContext) -> Any:
            return context.context.run(one, arguments, context)

        async def arun(arguments: Arguments, context: ToolCallContext) -> Any:
            return await context.context.arun(one, arguments, context)

        blocking = convert(one, run, self.approvals.needs_approval(one.name, partial(annotations_of, one)))
        return blocking, blocking.executed_by(arun)


class OuterTool(BaseTool):
    """A tool that a model is offered in place of others, and that runs them."""

    _face: Any = PrivateAttr()
    _caller: Caller = PrivateAttr()

    def __init__(self, face: Face, caller: Caller | None = None, **fields: Any) -> None:
        super().__init__(**fields)
        self._face = face
        self._caller = caller if caller is not None else DirectCaller()

    @property
    def core(self) -> Any:
        """The tool of the core behind it."""
        return self._face.core

    def is_like(self, other: OuterTool) -> bool:
        """Tell whether it runs the same tools by the same rules, as a copy does."""
        return self._face is other._face and self.name == other.name

    def run(self, tool_input: Any, *args: Any, tool_call_id: str | None = None, **settings: Any) -> Any:
        """Run as every tool does; the id of the call names the nested calls."""
        token, tool_input = _tool_call_id.set(tool_call_id), self._with_program(tool_input)
        try:
            return super().run(tool_input, *args, tool_call_id=tool_call_id, **settings)
        finally:
            _tool_call_id.reset(token)

    async def arun(self, tool_input: Any, *args: Any, tool_call_id: str | None = None, **settings: Any) -> Any:
        """Run as every tool does; the id of the call names the nested calls."""
        token, tool_input = _tool_call_id.set(tool_call_id), self._with_program(tool_input)
        try:
            return await super().arun(tool_input, *args, tool_call_id=tool_call_id, **settings)
        finally:
            _tool_call_id.reset(token)

    def _with_program(self, tool_input: Any) -> Any:
        return CodeModeTool.fill_program_field(tool_input, self.args)

    def _perform(self, call: OuterCall) -> Any:
        self._refuse_async_tools(call)
        segments = self._segments(call)
        return self._given(segments.run(), segments.config)

    def _refuse_async_tools(self, call: OuterCall) -> None:
        """Raise `CodeModeToolError` for a program that names a tool which a blocking call cannot run."""
        program = call.program or str(call.arguments.get("tool", ""))
        tools = (one for one in self._face.tools.values() if is_only_awaited(one) and _names_tool(program, one.name))
        if (found := next(tools, None)) is not None and not self._caller.may_be_answered():
            raise CodeModeToolError(ONLY_AWAITED.format(found.name), details={"tool_name": found.name})

    async def _aperform(self, call: OuterCall) -> Any:
        segments = self._segments(call)
        return self._given(await segments.arun(), segments.config)

    def _segments(self, call: OuterCall) -> Segments:
        config, tool_call_id = ensure_config(), _tool_call_id.get()
        if not tool_call_id:
            named = f"code-mode-{secrets.token_hex(8)}"
            tool_call_id = name_in_node(config, digest([call.name, call.arguments])) if is_in_node(config) else named
        return Segments(
            call=call,
            approvals=self._face.approvals,
            tool_call_id=tool_call_id,
            caller=self._caller,
            config=config,
        )

    def _given(self, outcome: Outcome, config: RunnableConfig) -> Any:
        """Return a message, in a command when nested calls update the state; outside a tool call value or error."""
        tool_call_id = _tool_call_id.get()
        if tool_call_id is None:
            if outcome.error is not None:
                raise outcome.error
            return outcome.value
        failure = outcome.failure
        message = ToolMessage(
            message_content(outcome.text, outcome.content) if failure is None else str(failure["text"]),
            artifact={"calls": list(outcome.artifacts)} if outcome.artifacts else None,
            name=self.name,
            tool_call_id=tool_call_id,
            status="success" if failure is None else "error",
        )
        return one_result(message, outcome.commands, partial(write_earlier, config))


def _names_tool(program: str, name: str) -> bool:
    """Tell whether a program calls a tool by its literal name, in the way of any surface."""
    plain = "|".join(map(re.escape, {name, name.replace("-", "_")}))
    ways = (
        rf"(?<![\w$.])tools\s*(?:\?\.|\.|\[\s*[\"'`])\s*(?:{plain})(?![\w$])",
        rf"(?:callTool|tools\.call)\s*\(\s*[\"'`](?:[^\"'`]*:)?(?:{plain})[\"'`]",
        rf"\{{[^{{}}]*(?<![\w$])(?:{plain})(?![\w$])[^{{}}]*\}}\s*=\s*tools(?![\w$.])",
        *([rf"(?<![\w$.]){re.escape(name)}\s*\("] if "." in name else ()),
    )
    return program == name or any(re.search(way, program) for way in ways)


def _as_it_is(
    one: BaseTool, made: Mapping[int, tuple[LangChainTool, LangChainTool]]
) -> tuple[LangChainTool, LangChainTool] | None:
    """Return what was made of a tool; None where it has come to say something else of itself."""
    found = made.get(id(one))
    return found if found is not None and (found[0].annotations or {}) == annotations_of(one) else None


def as_tools(given: Iterable[Any]) -> list[BaseTool]:
    """Return what an agent is given as tools, but for those that its provider runs."""
    made = (tool(one) if inspect.isroutine(one) else one for one in given)
    return [one for one in made if isinstance(one, BaseTool)]


def tools_of(
    given: Iterable[Any] | Toolkit,
    approvals: Approvals | None,
    middleware: str,
    check: Callable[[str], str] | None = None,
) -> list[BaseTool]:
    """Return LangChain tools, or a toolkit's, without those that no program could call; ``check`` tells their names.

    Raises `ValueError` for what is no tool, for a rule about none of them, for two of one name, and for one that needs
    injected state, which ``middleware`` is for.
    """
    collected = [_as_tool(one) for one in _listed(given)]
    for one in collected:
        _refuse_injection(one, middleware)
    if approvals is not None:
        approvals.require_known([one.name for one in collected])
    return select_callable_tools(collected) if check is None else select_callable_tools(collected, check)


def for_agents(
    options: CodeModeOptions | Mapping[str, Any] | None,
    *,
    pool: WorkerPool | None,
    has_clock: bool = True,
    listing: Listing | None = None,
    store: StoreLike | None = None,
) -> CodeModeOptions:
    """Return the options with the defaults of an agent: approvals pause the graph, unless a callback decides at once.

    Only the program's own time counts, where there is one clock, and it waits for a worker; a pool that is given does
    as it was told. Raises `ValueError` for wrong options, and for a pool that is closed.
    """
    more: dict[str, Any] = {"listing": listing, "store": store, "has_clock": has_clock, "max_age_ms": MAX_AGE_MS}
    return configure_agent_options(options, pool=pool, **more)


def _listed(given: Any) -> Iterable[Any]:
    if isinstance(given, Toolkit):
        return given.get_tools()
    # A tool is an iterable too: of its own fields.
    if isinstance(given, BaseTool | Mapping | str | bytes) or not isinstance(given, Iterable):
        raise ValueError(f"tools must be a list of tools, or a toolkit, got {type(cast('Any', given)).__name__}")  # noqa: TRY004
    return cast("Iterable[Any]", given)


def _as_tool(given: Any) -> BaseTool:
    if isinstance(given, BaseTool):
        return given
    if isinstance(given, type) or not callable(given):
        raise ValueError(f"tools must be LangChain tools and functions, got {type(given).__name__}")  # noqa: TRY004
    ToolSelection.refuse_framework_tool(given)
    try:
        return tool(given)
    except ValueError as error:  # LangChain does not say which function has no docstring
        raise ValueError(f"{getattr(given, '__name__', given)!r} cannot be a tool: {error}") from error


def _refuse_injection(one: BaseTool, middleware: str) -> None:
    fields: Mapping[str, Any] = getattr(one.args_schema, "model_fields", {})
    visible: Mapping[str, Any] = getattr(cast("Any", one.tool_call_schema), "model_fields", fields)
    hidden = {name for name, info in fields.items() if info.is_required()} - set(visible) - call_ids(fields)
    if hidden:
        raise ValueError(
            f"tool {one.name!r} takes {', '.join(sorted(hidden))} from a graph: use {middleware} in an agent"
        )


_MAX_FACES = 32
_MAX_TOOLS = 8192  # of all together, about 12 kB each: a server that is listed for every request may have any number
Key = tuple[Any, ...]


class KnownFaces:
    """Makes each surface once, one at a time; what is known is found while another one is made.

    That takes a second for a thousand tools: it is for a thread, where an event loop would wait.
    """

    def __init__(self, make: Callable[[Sequence[BaseTool]], Face]) -> None:
        self._make = make
        self._faces: OrderedDict[Key, Face] = OrderedDict()
        self._lock = forkable_lock()
        self._making = forkable_lock()

    def __contains__(self, key: Key) -> bool:
        return key in self._faces

    def of(self, key: Key, tools: Sequence[BaseTool]) -> Face:
        """Return the surface that is known by a key, which changes with all that it is made of."""
        face = self._known(key)
        if face is not None:
            return face
        with self._making:
            while (face := self._known(key)) is None:  # what was made by rules that are forgotten is made again
                faces, made = self._faces, self._make(tools)
                with self._lock:
                    faces[key] = made
                    while len(faces) > 1 and (len(faces) > _MAX_FACES or _tools_of(faces) > _MAX_TOOLS):
                        faces.popitem(last=False)
            return face

    def all(self) -> list[Face]:
        """Return those that are known."""
        with self._lock:
            return list(self._faces.values())

    def forget(self) -> None:
        """Make all of them again when they are asked for."""
        with self._lock:
            self._faces = OrderedDict()

    def _known(self, key: Key) -> Face | None:
        with self._lock:
            face = self._faces.get(key)
            if face is not None:
                self._faces.move_to_end(key)
            return face


def _tools_of(faces: Mapping[Key, Face]) -> int:
    return sum(len(one.given) for one in faces.values())
