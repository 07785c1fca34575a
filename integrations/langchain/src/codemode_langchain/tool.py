"""codeMode surface: one tool that runs programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field, PrivateAttr

from codemode import CallContext, CodeModeOptions, Interrupt, MediaContent, ProgramLibrary, WorkerPool
from codemode import CodeModeTool as Core
from codemode.plugins import BufferedStateBackend, Listing, PreparedTool
from codemode.stores import StoreLike

from .approvals import ApprovalPolicy, ApprovalRules, InterruptMode, ToolCaller
from .surfaces import Surface, SurfaceTool, Toolkit, convert_and_select_program_tools, make_agent_options

TOOL_NAME = Core.name


class ProgramInput(BaseModel):
    """The input of codeMode."""

    js: str = Field(description="The body of an async JavaScript (or TypeScript) function: use await, end with return.")


class CodeModeSurface(Surface):
    """codeMode over a set of tools."""

    def __init__(
        self,
        tools: Iterable[BaseTool],
        options: CodeModeOptions,
        approvals: ApprovalPolicy,
        pool: WorkerPool | None = None,
        library: ProgramLibrary | None = None,
    ) -> None:
        super().__init__(tools, approvals)
        self.sync_core = Core(self._sync_tools, options, pool, library=library)
        self.async_core = Core(self._async_tools, options, pool, library=library)

    @property
    def core(self) -> Core:
        """See `Surface.core`."""
        return self.async_core

    def build_tools(self) -> tuple[SurfaceTool, ...]:
        """See `Surface.build_tools`."""
        return (CodeModeTool(self),)

    @property
    def description(self) -> str:
        """The description for the model."""
        return self.async_core.description


class CodeModeCall:
    """One call of codeMode."""

    name = TOOL_NAME
    continues_program = False

    def __init__(self, core: Core, js: str, backend: BufferedStateBackend | None) -> None:
        self._core = core.for_one_call()
        self.backend = backend
        self.program = js
        self.arguments = {"js": js}
        self.is_journaled = core.options.continuation.journal is not None

    def find_tool(self, name: str) -> PreparedTool | None:
        return self._core.catalog.get(name)

    def get_display_name(self, name: str) -> str:
        return name

    def start(self, call: CallContext) -> Any:
        return self._core.execute_sync(self.arguments, replace(call, state=self.backend))

    async def astart(self, call: CallContext) -> Any:
        return await self._core.execute(self.arguments, replace(call, state=self.backend))

    def resume(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        call = replace(call, state=self.backend)
        return self._core.resume_sync(interrupt, call=call, resolutions=answers)

    async def aresume(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        call = replace(call, state=self.backend)
        return await self._core.resume(interrupt, call=call, resolutions=answers)

    def to_model_parts(self, result: Any, tool_call_id: str) -> tuple[Any, list[MediaContent]]:
        return self._core.to_model_parts(result, tool_call_id=tool_call_id)


class CodeModeTool(SurfaceTool):
    """One tool that runs programs over other tools. Create it with `create_code_mode_tool`."""

    name: str = TOOL_NAME
    description: str = ""
    args_schema: Any = ProgramInput
    _backend: BufferedStateBackend | None = PrivateAttr(default=None)

    def __init__(
        self,
        surface: CodeModeSurface,
        caller: ToolCaller | None = None,
        backend: BufferedStateBackend | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(surface, caller, description=surface.description, **fields)
        self._backend = backend

    def _run(self, js: str) -> Any:
        return self._run_outer_call(CodeModeCall(self._surface.sync_core, js, self._backend))

    async def _arun(self, js: str) -> Any:
        return await self._arun_outer_call(CodeModeCall(self._surface.async_core, js, self._backend))


def create_code_mode_tool(
    tools: Iterable[Any] | Toolkit,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    *,
    approve: ApprovalRules | None = None,
    pool: WorkerPool | None = None,
    interrupt_mode: InterruptMode = "per_call",
    listing: Listing | None = None,
    store: StoreLike | None = None,
    library: ProgramLibrary | None = None,
) -> BaseTool:
    """Convert LangChain tools, or a toolkit, to one tool for ``bind_tools``, ``ToolNode`` and so on.

    ``approve``: nested calls that need approval: a mapping of tool names to True, to a function of the arguments or to
    an `ApprovalConfig`; a function ``(name, args) -> bool``; or "destructive" for tools that are destructive or declare
    nothing. Approval needs a LangGraph node with a checkpointer. ``interrupt_mode="batched"``: all pending calls of a
    program are one interrupt, answered with ``{"decisions": [...]}`` in order. ``listing``:
    ``execution_policy.listing``. ``store``: as in `codemode.create_code_mode_tool`; any process with the key and the
    checkpoints can resume, and only one does. ``library``: saved programs, as there.

    Raises `ValueError` for invalid options and rules, and for tools that need injected state: use `CodeModeMiddleware`
    for those. Tools without a callable name are left out, with a warning in the log.
    """
    approvals = ApprovalPolicy(approve, interrupt_mode)
    langchain_tools = convert_and_select_program_tools(tools, approvals, "CodeModeMiddleware")
    agent_options = make_agent_options(options, pool=pool, listing=listing, store=store)
    return CodeModeTool(CodeModeSurface(langchain_tools, agent_options, approvals, pool, library))
