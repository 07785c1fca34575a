"""The tools that a LangChain model sees of CodeCall: search, describe, execute, invoke. Knows no middleware."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool
from pydantic import PrivateAttr

import codemode
from codemode import (
    CallContext,
    CodeCallOptions,
    CodeCallToolset,
    CodeModeError,
    Interrupt,
    MediaContent,
    ProgramLibrary,
    WorkerPool,
)
from codemode.plugins import PreparedTool
from codemode.stores import StoreLike

from .approvals import ApprovalRules, Approvals, Caller, InterruptMode
from .conversion import annotations_of
from .faces import Face, OuterTool, Toolkit, for_agents, tools_of
from .segments import Outcome, as_text, failure_of

ScriptContext: TypeAlias = Callable[[Any], Mapping[str, Any]]
"""Makes what scripts read as ``codecallContext`` of a tool's configuration, or of an agent's ``ToolRuntime``."""


class CodeCallFace(Face):
    """A set of tools as CodeCall sees it, with the options of ``core``; what ``before`` has too is not made again."""

    def __init__(
        self,
        tools: Iterable[BaseTool],
        core: CodeCallToolset,
        approvals: Approvals,
        before: CodeCallFace | None = None,
    ) -> None:
        super().__init__(tools, approvals, before)
        self.awaiting = (core if before is None else before.awaiting).over(self._for_awaiting)
        self._visible = frozenset(one.name for one in self.awaiting.list_tools()) & self.tools.keys()
        self._blocking: CodeCallToolset | None = None
        self._converted_by_name = {one.name: one for one in self._for_awaiting}

    @property
    def blocking(self) -> CodeCallToolset:
        """The same, for callers that block."""
        if self._blocking is None:
            self._blocking = self.awaiting.over(self._for_blocking)
        return self._blocking

    @property
    def core(self) -> CodeCallToolset:
        """See `Face.core`."""
        return self.awaiting

    def offered(self) -> tuple[OuterTool, ...]:
        """See `Face.offered`."""
        return tuple(CodeCallTool(self, one) for one in self.awaiting.tools)

    def visible(self) -> frozenset[str]:
        """See `Face.visible`."""
        return self._visible

    def tool_named(self, name: str) -> PreparedTool | None:
        """Return one of the tools, made ready."""
        found = self._converted_by_name.get(name)
        return None if found is None else PreparedTool.of(found)

    def own_tool(self, name: str, caller: Caller, script_context: Callable[[], Mapping[str, Any]] | None) -> BaseTool:
        """Return a meta-tool whose inner calls ``caller`` makes."""
        described = next(one for one in self.awaiting.tools if one.name == name)
        return CodeCallTool(self, described, caller, script_context)


class MetaCall:
    """One call of a meta-tool."""

    goes_on = False

    def __init__(
        self,
        core: CodeCallToolset,
        face: CodeCallFace,
        name: str,
        arguments: Mapping[str, Any],
        script_context: Callable[[], Mapping[str, Any]] | None,
    ) -> None:
        self._core = core
        self._face = face
        self._script_context = script_context
        self.name = name
        self.arguments = arguments
        self.is_journaled = core.options.settings.continuation.journal is not None

    @property
    def program(self) -> str:
        return str(self.arguments.get("script", ""))

    def tool_named(self, name: str) -> PreparedTool | None:
        return self._face.tool_named(name)

    def shown_name(self, name: str) -> str:
        return name

    def start(self, call: CallContext) -> Any:
        return self._core.call_sync(self.name, self.arguments, call, script_context=self._hosts_context())

    async def astart(self, call: CallContext) -> Any:
        return await self._core.call(self.name, self.arguments, call, script_context=self._hosts_context())

    def go_on(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        return self._core.resume_sync(interrupt, call=call, resolutions=answers)

    async def ago_on(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        return await self._core.resume(interrupt, call=call, resolutions=answers)

    def shown(self, answer: Any, tool_call_id: str) -> tuple[Any, list[MediaContent]]:  # noqa: ARG002 - as other surfaces have it
        return answer, []

    def _hosts_context(self) -> Mapping[str, Any] | None:
        return None if self._script_context is None else self._script_context()


class CodeCallTool(OuterTool):
    """One of the meta-tools over other tools. Make them with `create_code_call_tools`."""

    name: str = ""
    description: str = ""
    _makes_calls: bool = PrivateAttr()
    _script_context: Callable[[], Mapping[str, Any]] | None = PrivateAttr()

    def __init__(
        self,
        face: CodeCallFace,
        described: codemode.Tool,
        caller: Caller | None = None,
        script_context: Callable[[], Mapping[str, Any]] | None = None,
        **fields: Any,
    ) -> None:
        fields |= {"name": described.name, "description": described.description, "args_schema": described.input_schema}
        super().__init__(face, caller, **fields)
        self._makes_calls = not described.annotations["readOnlyHint"]
        self._script_context = script_context

    # What a model writes is read by the core: any of its keys, of these names too, is an argument.

    def _run(self, /, **arguments: Any) -> Any:
        call = self._call(self._face.blocking, arguments)
        if self._makes_calls:
            return self._perform(call)
        try:
            return self._answer(call.start(CallContext()))
        except CodeModeError as error:
            return self._failed(error)

    async def _arun(self, /, **arguments: Any) -> Any:
        call = self._call(self._face.awaiting, arguments)
        if self._makes_calls:
            return await self._aperform(call)
        try:
            return self._answer(await call.astart(CallContext()))
        except CodeModeError as error:
            return self._failed(error)

    def _call(self, core: CodeCallToolset, arguments: Mapping[str, Any]) -> MetaCall:
        return MetaCall(core, self._face, self.name, arguments, self._script_context)

    def _answer(self, answer: Any) -> Any:
        return self._given(Outcome(value=answer, text=as_text(answer)), {})

    def _failed(self, error: CodeModeError) -> Any:
        return self._given(Outcome(failure=failure_of(error, ""), error=error), {})


def create_code_call_tools(
    tools: Iterable[Any] | Toolkit,
    options: CodeCallOptions | Mapping[str, Any] | None = None,
    *,
    approve: ApprovalRules | None = None,
    script_context: ScriptContext | None = None,
    pool: WorkerPool | None = None,
    interrupt_mode: InterruptMode = "per_call",
    store: StoreLike | None = None,
    library: ProgramLibrary | None = None,
) -> list[BaseTool]:
    """Turn LangChain tools, or a toolkit, into those of CodeCall, and the tools that stay visible beside them.

    ``options`` are `codemode.CodeCallOptions` or a mapping, in which ``search["embed"]`` may be LangChain's
    ``Embeddings``. ``approve``, ``interrupt_mode``, ``store`` and ``library`` are as in `create_code_mode_tool`;
    ``script_context`` makes a script's context of the `RunnableConfig`. Raises `ValueError` as that does, and for a
    rule about a tool that stays visible.
    """
    approvals = Approvals(approve, interrupt_mode)
    wrapped = tools_of(tools, approvals, "CodeCallMiddleware")
    face = CodeCallFace(wrapped, no_tools(options, pool, store, library), approvals)
    if ungated := sorted(one for one in face.visible() if approvals.may_ask(one, annotations_of(face.tools[one]))):
        raise ValueError(
            f"{ungated[0]!r} stays visible to the model, and approve may ask about it: only calls from scripts and of"
            " invoke wait for a person. Use CodeCallMiddleware in an agent, or do not let it be visible"
        )
    shared = None if script_context is None else lambda: script_context(ensure_config())
    own = [CodeCallTool(face, one, script_context=shared) for one in face.awaiting.tools]
    return [*own, *(one for one in wrapped if one.name in face.visible())]


def no_tools(
    options: CodeCallOptions | Mapping[str, Any] | None,
    pool: WorkerPool | None,
    store: StoreLike | None = None,
    library: ProgramLibrary | None = None,
) -> CodeCallToolset:
    """Return CodeCall over no tools, with an agent's defaults. Raises `ValueError` with the path of what is wrong."""
    given = CodeCallOptions.of(_with_embed_function(options) if isinstance(options, Mapping) else options)
    # Neither OpenAI nor Anthropic accepts a dot or a colon in the name of a tool.
    given = given.with_defaults(names="underscore")
    settings = for_agents(given.settings, pool=pool, store=store)
    return codemode.create_code_call_tools([], given.replaced(settings=settings), pool=pool, library=library)


def _with_embed_function(options: Mapping[str, Any]) -> Mapping[str, Any]:
    from langchain_core.embeddings import Embeddings

    search: Any = options.get("search")
    if not isinstance(search, Mapping) or not isinstance(cast("Any", search).get("embed"), Embeddings):
        return options
    embeddings = cast("Any", search)["embed"]
    return {**options, "search": {**search, "embed": embeddings.embed_documents}}
