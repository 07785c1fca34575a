"""CodeCall surface: meta-tools that search, describe and run other tools."""

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

from .approvals import ApprovalPolicy, ApprovalRules, InterruptMode, ToolCaller
from .conversion import get_annotations
from .segments import ProgramOutcome, make_failure_fields, to_message_text
from .surfaces import Surface, SurfaceTool, Toolkit, convert_and_select_program_tools, make_agent_options

ScriptContext: TypeAlias = Callable[[Any], Mapping[str, Any]]
"""Returns ``codecallContext`` for scripts from a tool's configuration or an agent's ``ToolRuntime``."""


class CodeCallSurface(Surface):
    """CodeCall over a set of tools, with the options of ``core``; reuses conversions of ``previous``."""

    def __init__(
        self,
        tools: Iterable[BaseTool],
        core: CodeCallToolset,
        approvals: ApprovalPolicy,
        previous: CodeCallSurface | None = None,
    ) -> None:
        super().__init__(tools, approvals, previous)
        self.async_core = (core if previous is None else previous.async_core).with_tools(self._async_tools)
        self._visible_names = frozenset(tool.name for tool in self.async_core.list_tools()) & self.tools.keys()
        self._sync_core: CodeCallToolset | None = None
        self._tools_by_name = {tool.name: tool for tool in self._async_tools}

    @property
    def sync_core(self) -> CodeCallToolset:
        """The toolset for synchronous callers."""
        if self._sync_core is None:
            self._sync_core = self.async_core.with_tools(self._sync_tools)
        return self._sync_core

    @property
    def core(self) -> CodeCallToolset:
        """See `Surface.core`."""
        return self.async_core

    def build_tools(self) -> tuple[SurfaceTool, ...]:
        """See `Surface.build_tools`."""
        return tuple(CodeCallTool(self, tool) for tool in self.async_core.tools)

    def list_visible_names(self) -> frozenset[str]:
        """See `Surface.list_visible_names`."""
        return self._visible_names

    def find_tool(self, name: str) -> PreparedTool | None:
        """Return a prepared tool by name, or None."""
        tool = self._tools_by_name.get(name)
        return None if tool is None else PreparedTool.from_tool(tool)

    def make_meta_tool(
        self, name: str, caller: ToolCaller, script_context: Callable[[], Mapping[str, Any]] | None
    ) -> BaseTool:
        """Return a meta-tool whose nested calls ``caller`` runs."""
        core_tool = next(tool for tool in self.async_core.tools if tool.name == name)
        return CodeCallTool(self, core_tool, caller, script_context)


class MetaToolCall:
    """One call of a meta-tool."""

    continues_program = False

    def __init__(
        self,
        core: CodeCallToolset,
        surface: CodeCallSurface,
        name: str,
        arguments: Mapping[str, Any],
        script_context: Callable[[], Mapping[str, Any]] | None,
    ) -> None:
        self._core = core
        self._surface = surface
        self._script_context = script_context
        self.name = name
        self.arguments = arguments
        self.is_journaled = core.options.settings.continuation.journal is not None

    @property
    def program(self) -> str:
        return str(self.arguments.get("script", ""))

    def find_tool(self, name: str) -> PreparedTool | None:
        return self._surface.find_tool(name)

    def get_display_name(self, name: str) -> str:
        return name

    def start(self, call: CallContext) -> Any:
        return self._core.call_sync(self.name, self.arguments, call, script_context=self._make_script_context())

    async def astart(self, call: CallContext) -> Any:
        return await self._core.call(self.name, self.arguments, call, script_context=self._make_script_context())

    def resume(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        return self._core.resume_sync(interrupt, call=call, resolutions=answers)

    async def aresume(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        return await self._core.resume(interrupt, call=call, resolutions=answers)

    def to_model_parts(self, result: Any, tool_call_id: str) -> tuple[Any, list[MediaContent]]:  # noqa: ARG002 - as other surfaces have it
        return result, []

    def _make_script_context(self) -> Mapping[str, Any] | None:
        return None if self._script_context is None else self._script_context()


class CodeCallTool(SurfaceTool):
    """One of the meta-tools. Create them with `create_code_call_tools`."""

    name: str = ""
    description: str = ""
    _makes_calls: bool = PrivateAttr()
    _script_context: Callable[[], Mapping[str, Any]] | None = PrivateAttr()

    def __init__(
        self,
        surface: CodeCallSurface,
        core_tool: codemode.Tool,
        caller: ToolCaller | None = None,
        script_context: Callable[[], Mapping[str, Any]] | None = None,
        **fields: Any,
    ) -> None:
        fields |= {"name": core_tool.name, "description": core_tool.description, "args_schema": core_tool.input_schema}
        super().__init__(surface, caller, **fields)
        self._makes_calls = not core_tool.annotations["readOnlyHint"]
        self._script_context = script_context

    # The core validates the model's input: any key is an argument, "self" too.

    def _run(self, /, **arguments: Any) -> Any:
        call = self._make_call(self._surface.sync_core, arguments)
        if self._makes_calls:
            return self._run_outer_call(call)
        try:
            return self._value_to_result(call.start(CallContext()))
        except CodeModeError as error:
            return self._error_to_result(error)

    async def _arun(self, /, **arguments: Any) -> Any:
        call = self._make_call(self._surface.async_core, arguments)
        if self._makes_calls:
            return await self._arun_outer_call(call)
        try:
            return self._value_to_result(await call.astart(CallContext()))
        except CodeModeError as error:
            return self._error_to_result(error)

    def _make_call(self, core: CodeCallToolset, arguments: Mapping[str, Any]) -> MetaToolCall:
        return MetaToolCall(core, self._surface, self.name, arguments, self._script_context)

    def _value_to_result(self, result: Any) -> Any:
        return self._outcome_to_result_or_raise(ProgramOutcome(value=result, text=to_message_text(result)), {})

    def _error_to_result(self, error: CodeModeError) -> Any:
        return self._outcome_to_result_or_raise(ProgramOutcome(failure=make_failure_fields(error, ""), error=error), {})


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
    """Convert LangChain tools, or a toolkit, to the meta-tools of CodeCall and the tools that stay visible.

    ``options``: `codemode.CodeCallOptions` or a mapping, in which ``search["embed"]`` may be LangChain ``Embeddings``.
    ``approve``, ``interrupt_mode``, ``store`` and ``library``: as in `create_code_mode_tool`. ``script_context``:
    returns a script's context from the `RunnableConfig`. Raises `ValueError` as `create_code_mode_tool` does, and for a
    rule about a tool that stays visible.
    """
    approvals = ApprovalPolicy(approve, interrupt_mode)
    langchain_tools = convert_and_select_program_tools(tools, approvals, "CodeCallMiddleware")
    surface = CodeCallSurface(langchain_tools, create_empty_code_call_toolset(options, pool, store, library), approvals)
    if ungated_names := sorted(
        tool
        for tool in surface.list_visible_names()
        if approvals.may_need_approval(tool, get_annotations(surface.tools[tool]))
    ):
        raise ValueError(
            f"{ungated_names[0]!r} stays visible to the model, and approve may ask about it: only calls from scripts"
            " and of invoke wait for a person. Use CodeCallMiddleware in an agent, or do not make it visible"
        )
    shared_context = None if script_context is None else lambda: script_context(ensure_config())
    meta_tools = [CodeCallTool(surface, tool, script_context=shared_context) for tool in surface.async_core.tools]
    return [*meta_tools, *(tool for tool in langchain_tools if tool.name in surface.list_visible_names())]


def create_empty_code_call_toolset(
    options: CodeCallOptions | Mapping[str, Any] | None,
    pool: WorkerPool | None,
    store: StoreLike | None = None,
    library: ProgramLibrary | None = None,
) -> CodeCallToolset:
    """Create CodeCall without tools, with an agent's defaults. Raises `ValueError` for an invalid option."""
    call_options = CodeCallOptions.of(_convert_embeddings_option(options) if isinstance(options, Mapping) else options)
    # Neither OpenAI nor Anthropic accepts a dot or a colon in the name of a tool.
    call_options = call_options.with_defaults(names="underscore")
    settings = make_agent_options(call_options.settings, pool=pool, store=store)
    return codemode.create_code_call_tools([], call_options.with_changes(settings=settings), pool=pool, library=library)


def _convert_embeddings_option(options: Mapping[str, Any]) -> Mapping[str, Any]:
    from langchain_core.embeddings import Embeddings

    search: Any = options.get("search")
    if not isinstance(search, Mapping) or not isinstance(cast("Any", search).get("embed"), Embeddings):
        return options
    embeddings = cast("Any", search)["embed"]
    return {**options, "search": {**search, "embed": embeddings.embed_documents}}
