"""The toolset that shows a model one tool instead of many. Answers no approvals and rewrites no history."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakValueDictionary

from pydantic import TypeAdapter
from pydantic_ai import RunContext, Tool
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.tools import AgentDepsT, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset
from typing_extensions import TypedDict

from codemode import (
    CodeModeError,
    CodeModeOptions,
    CodeModeProtocolError,
    CodeModeTool,
    ContinuationOptions,
    Interrupt,
    WorkerPool,
    failure_text,
)
from codemode import create_code_mode_tool as create_core_tool
from codemode.plugins import not_negative, pool_or_default

from .hidden_tools import CompiledTools, stays_native
from .nested import NestedCalls
from .pauses import KEY, TOOL_NAME, Pause, pause_metadata
from .turns import SharedTurns

MAX_AGE_MS = 7 * 24 * 60 * 60 * 1000
MAX_RETRIES = 3
_MAX_SHOWN_RUNS = 1024

Options = CodeModeOptions | Mapping[str, Any] | None


class _Input(TypedDict):
    js: str


_INPUT = TypeAdapter(_Input)


def options_of(options: Options, pool: WorkerPool | None) -> CodeModeOptions:
    """Return the options of programs that agents run.

    A continuation may leave the process: it is sealed, and holds for a week. Time that tools take is not the program's.
    A program waits for a worker of the process-wide pool; a pool that is given keeps its own way.
    """
    given = CodeModeOptions.of(options)
    kept = given.continuation
    max_age_ms = kept.max_age_ms if kept.max_age_ms is not None else MAX_AGE_MS
    sealed: ContinuationOptions = dataclasses.replace(kept, seal=True, max_age_ms=max_age_ms)
    policy = given.execution_policy.with_defaults(clock="program", on_saturation="wait" if pool is None else None)
    return given.having(continuation=sealed, execution_policy=policy)


def check_settings(keep: Collection[str], max_retries: int, pool: WorkerPool | None) -> None:
    """Raise `ValueError` for what a toolset cannot be made with: one text as ``keep`` would keep each part of it."""
    if isinstance(keep, str):
        raise ValueError(f"keep must be a list of tool names, got {keep!r}")  # noqa: TRY004 - as every wrong option
    not_negative(max_retries, "max_retries")
    if pool is not None:
        pool_or_default(pool)


@dataclass
class RunState(SharedTurns):
    """What the codeMode calls of one run of the agent share.

    ``paused`` holds the metadata of paused calls by their id, ``settled`` what became of answered inner calls,
    ``shown`` the ids of waiting calls that a client knows of.
    """

    paused: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    settled: dict[str, dict[str, ToolReturnPart]] = field(default_factory=dict[str, dict[str, ToolReturnPart]])
    shown: set[str] = field(default_factory=set[str])


@dataclass(kw_only=True)
class _CodeModeTool(ToolsetTool[Any]):
    """The codeMode tool of one step, with the tools behind it."""

    code_mode: CodeModeTool
    hidden: dict[str, ToolsetTool[Any]]


@dataclass
class CodeModeToolset(WrapperToolset[AgentDepsT]):
    """Replaces the tools of another toolset with ``codeMode``, except those that must stay native.

    ``options``: `CodeModeOptions` or a mapping. ``keep``: names of tools that the model goes on calling directly.
    ``max_retries``: how often the model may correct a program that failed. ``pool``: the `WorkerPool` that runs the
    programs. The `CodeMode` capability uses it; without that, a pause defers the codeMode call itself, and `answer`
    answers the inner calls in its metadata.
    """

    options: Options = None
    keep: Collection[str] = ()
    max_retries: int = MAX_RETRIES
    pool: WorkerPool | None = None
    compiled: CompiledTools | None = field(default=None, repr=False)
    run: RunState | None = field(default=None, repr=False)
    is_all_of_the_agent: bool = field(default=False, repr=False)
    _runs: WeakValueDictionary[str, RunState] = field(default_factory=WeakValueDictionary[str, RunState], repr=False)

    def __post_init__(self) -> None:
        """Check the options now, not in the first run."""
        check_settings(self.keep, self.max_retries, self.pool)
        self.options = options_of(self.options, self.pool)
        if self.compiled is None:
            self.compiled = CompiledTools(self.options, self.pool)

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """Return the toolset with a state of its own for this run."""
        return dataclasses.replace(self, wrapped=await self.wrapped.for_run(ctx), run=self.run or RunState())

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools that stay native, and codeMode for the others."""
        tools = await self.wrapped.get_tools(ctx)
        shown = {name: tool for name, tool in tools.items() if stays_native(tool.tool_def, self.keep, ctx)}
        hidden = {name: tool for name, tool in tools.items() if name not in shown}
        if not hidden:
            return shown
        if TOOL_NAME in shown:
            raise UserError(
                f"a tool that stays native is called {TOOL_NAME!r}, which is the name of the code mode tool"
            )
        return {**shown, TOOL_NAME: self._code_mode(hidden)}

    def _code_mode(self, hidden: dict[str, ToolsetTool[AgentDepsT]]) -> ToolsetTool[AgentDepsT]:
        assert self.compiled is not None  # noqa: S101 - made with the toolset
        code_mode = self.compiled.of(hidden)
        definition = ToolDefinition(
            name=TOOL_NAME,
            description=code_mode.description,
            parameters_json_schema=code_mode.input_schema,
            # What runs beside it is not all known here: then the framework must keep it apart.
            sequential=not self.is_all_of_the_agent and any(tool.tool_def.sequential for tool in hidden.values()),
        )
        return _CodeModeTool(
            toolset=self,
            tool_def=definition,
            max_retries=self.max_retries,
            args_validator=cast("Any", _INPUT.validator),
            code_mode=code_mode,
            hidden=hidden,
        )

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Run a program, go on with a paused one, or call a tool that stayed native."""
        run = self._run_state(ctx)
        if not isinstance(tool, _CodeModeTool):
            async with run.turns.take(alone=tool.tool_def.sequential):
                return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        reservation = run.budget.begin()
        try:
            return await _Program(tool, self.wrapped, ctx, run).run(tool_args["js"])
        finally:
            reservation.release()

    def _run_state(self, ctx: RunContext[AgentDepsT]) -> RunState:
        if self.run is not None:
            return self.run
        return RunState() if ctx.run_id is None else self._runs.setdefault(ctx.run_id, RunState())


class _Program:
    """One codeMode call: from the model's arguments to its result, its pause or its retry."""

    def __init__(self, tool: _CodeModeTool, wrapped: AbstractToolset[Any], ctx: RunContext[Any], run: RunState) -> None:
        self._code_mode = tool.code_mode.for_one_call()
        self._ctx = ctx
        self._run = run
        self._id = ctx.tool_call_id or ""
        policy = tool.code_mode.options.execution_policy
        self._calls = NestedCalls(wrapped, tool.hidden, ctx, run, policy)

    async def run(self, js: str) -> Any:
        """Return the value of the program. Raises `ApprovalRequired` for a pause, `ModelRetry` for a failure."""
        resumed = await self._resumed() if self._ctx.tool_call_approved else None
        try:
            value = await self._until_fatal(js, resumed)
        except CodeModeProtocolError:
            raise
        except CodeModeError as error:
            raise ModelRetry(failure_text(error, js)) from error
        finally:
            if self._calls.settled:
                self._run.settled[self._id] = self._calls.settled
        if isinstance(value, Interrupt):
            self._pause(pause_metadata(value))
        return self._code_mode.to_model_output(value, tool_call_id=self._id)["value"]

    async def _resumed(self) -> tuple[Pause, dict[str, Any]]:
        """Return the pause that an approval of the codeMode call resumes, and the answers."""
        metadata = self._ctx.tool_call_metadata
        carried = cast("dict[str, Any]", metadata).get(KEY) if isinstance(metadata, dict) else None
        if carried is None:
            # To approve the program is not to approve what it calls, least of all to run it again.
            if self._id in self._run.paused:
                self._pause(self._run.paused[self._id])
            raise UserError(
                "A codeMode call was approved as a whole. What waits are its inner calls: answer those, by their ids."
            )
        pause = await Pause.of(carried["continuation"], self._code_mode.options, self._ctx.conversation_id)
        if pause.outer_id != self._id:
            raise UserError("The continuation belongs to another call of codeMode.")
        if not carried["answers"]:
            self._pause(pause_metadata(pause.interrupt))
        return pause, carried["answers"]

    def _pause(self, metadata: dict[str, Any]) -> None:
        self._run.paused[self._id] = metadata
        raise ApprovalRequired(metadata=metadata)

    async def _until_fatal(self, js: str, resumed: tuple[Pause, dict[str, Any]] | None) -> Any:
        task = asyncio.ensure_future(self._execute(js, resumed))
        self._calls.stop = task.cancel
        try:
            return await task
        except (CodeModeError, asyncio.CancelledError):
            if self._calls.fatal is None:
                raise
            raise self._calls.fatal from None

    async def _execute(self, js: str, resumed: tuple[Pause, dict[str, Any]] | None) -> Any:
        ctx = self._ctx
        shared: dict[str, Any] = {
            "messages": ctx.messages,
            "context": self._calls,
            "context_binding": ctx.conversation_id or None,
        }
        noted_ms = _response_time_ms(ctx.messages)
        if self._calls.is_repeated and noted_ms is not None:
            shared["clock_ms"] = lambda: noted_ms
        if resumed is None:
            begun: dict[str, Any] = {"tool_call_id": self._id or None, "started_at_ms": noted_ms}
            return await self._code_mode.execute({"js": js}, **begun, **shared)
        pause, answers = resumed
        return await self._code_mode.resume(pause.interrupt, resolutions=answers, **shared)


def _response_time_ms(messages: Iterable[ModelMessage]) -> int | None:
    """Return when the model made its calls: the one time that an engine that repeats a run has recorded."""
    times = [message.timestamp for message in messages if isinstance(message, ModelResponse)]
    return max(int(times[-1].timestamp() * 1000), 1) if times else None


class _ShownSteps:
    """What each step of the last runs showed its model: that can be called, and nothing else."""

    def __init__(self) -> None:
        self._steps: OrderedDict[str, tuple[int, ToolsetTool[Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, ctx: RunContext[Any], made: ToolsetTool[Any]) -> None:
        if ctx.run_id is not None:
            with self._lock:
                self._steps[ctx.run_id] = (ctx.run_step, made)
                self._steps.move_to_end(ctx.run_id)
                while len(self._steps) > _MAX_SHOWN_RUNS:
                    self._steps.popitem(last=False)

    def get(self, ctx: RunContext[Any]) -> ToolsetTool[Any] | None:
        with self._lock:
            step, made = self._steps.get(ctx.run_id or "", (None, None))
        return made if step == ctx.run_step else None


def create_code_mode_tool(
    tools: AbstractToolset[AgentDepsT] | Iterable[Any],
    options: Options = None,
    *,
    max_retries: int = MAX_RETRIES,
    pool: WorkerPool | None = None,
) -> Tool[AgentDepsT]:
    """Make one `pydantic_ai.Tool` of a toolset or of tools and functions, for agents without the capability.

    The model is shown the tools that the toolset has at each step. A toolset that must be entered, as some MCP ones
    must, is for you to enter. ``pool``: the `WorkerPool` that runs the programs. A pause defers the call of this tool;
    see `answer`.
    """
    wrapped = tools if isinstance(tools, AbstractToolset) else FunctionToolset[AgentDepsT](list(tools))
    toolset = CodeModeToolset(wrapped, options, max_retries=max_retries, pool=pool)

    shown = _ShownSteps()

    async def prepare(ctx: RunContext[AgentDepsT], definition: ToolDefinition) -> ToolDefinition | None:
        made = (await toolset.get_tools(ctx)).get(TOOL_NAME)
        if made is None:
            return None
        shown.put(ctx, made)
        said = made.tool_def
        return dataclasses.replace(definition, description=said.description, sequential=said.sequential)

    async def code_mode(ctx: RunContext[AgentDepsT], js: str) -> Any:
        made = shown.get(ctx) or (await toolset.get_tools(ctx))[TOOL_NAME]
        return await toolset.call_tool(TOOL_NAME, {"js": js}, ctx, made)

    schema = create_core_tool([]).input_schema
    tool = Tool[AgentDepsT].from_schema(code_mode, TOOL_NAME, "Run a program over tools.", schema, takes_ctx=True)
    tool.prepare = prepare
    tool.max_retries = max_retries
    return tool
