"""Create codeMode as a function tool or custom tool of the SDK."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

from agents import CustomTool, FunctionTool, FunctionToolCustomDataContext, RunConfig, ToolOutputText, UserError
from agents.tool_context import ToolContext
from pydantic import BaseModel

from codemode import CodeModeOptions, CodeModeTool, ProgramLibrary, Tool, ToolCallContext, WorkerPool
from codemode import create_code_mode_tool as create_core_tool
from codemode.plugins import Listing, configure_agent_options
from codemode.stores import StoreLike

from . import sdk_internals
from .approvals import ApprovalPolicy, ApprovalRules
from .content import to_tool_output
from .conversion import convert_and_select_function_tools, convert_tool
from .outer_call import CallLog, OnStream, OuterCall
from .pauses import ACTIVE_PROGRAM, SAVE_TOOL_NAME, TOOL_NAME, ActiveProgram, ContextCapturingHooks, ProgramAgent

_MAX_PAUSES = 1_000_000

OptionsLike: TypeAlias = CodeModeOptions | Mapping[str, Any] | None
StateFactory: TypeAlias = Callable[[ToolContext[Any]], Any]


class ProgramInput(BaseModel):
    """The input of codeMode."""

    js: str


def code_mode(
    tools: Iterable[Any],
    options: OptionsLike = None,
    *,
    approve: ApprovalRules | None = None,
    pool: WorkerPool | None = None,
    listing: Listing | None = None,
    state: StateFactory | None = None,
    on_stream: OnStream | None = None,
    store: StoreLike | None = None,
    library: ProgramLibrary | None = None,
) -> FunctionTool:
    """Create the function tool ``codeMode``, with which a model writes programs that call other tools.

    ``tools``: function tools and functions. ``options``: `CodeModeOptions` or a mapping. ``approve``: calls that need
    approval, in addition to each tool's ``needs_approval``: a mapping of tool names to True or to
    ``(context, arguments, call_id) -> bool``; a function ``(name, arguments) -> bool``; or "destructive" for tools that
    MCP servers do not declare harmless. ``pool``: `WorkerPool` that runs programs. ``listing``:
    ``execution_policy.listing``. ``state``: ``(context) -> mapping or state backend``, where programs keep values for
    later programs. ``on_stream``: called with an `AgentToolStreamEvent` when a nested call starts and when it ends.
    ``store``: as in `codemode.create_code_mode_tool`; any process with the key and the run state can resume, and only
    one does. ``library``: saved programs, as there; the description lists those saved at creation.

    Raises `ValueError` for invalid options and rules, and for a tool that is no function tool.
    """
    policy = ApprovalPolicy(approve)
    function_tools = convert_and_select_function_tools(tools)
    policy.require_existing_names([tool.name for tool in function_tools])
    config = CodeModeToolConfig(
        make_agent_options(options, pool, listing, state, store), policy, pool, state, on_stream, library
    )
    return ProgramFunctionTool(function_tools, config, ProgramAgent.create()).tool


def code_mode_custom_tool(
    tools: Iterable[Any],
    options: OptionsLike = None,
    *,
    pool: WorkerPool | None = None,
    listing: Listing | None = None,
    state: StateFactory | None = None,
    on_stream: OnStream | None = None,
) -> CustomTool:
    """Create codeMode as a custom tool of the Responses API, whose input is the program as raw text, not JSON.

    Parameters are those of `code_mode`. The SDK cannot pause a run in a custom tool, and passes only text to the model.
    Raises `ValueError` as `code_mode` does, and for a tool whose calls may need approval.
    """
    policy = ApprovalPolicy(None)
    function_tools = convert_and_select_function_tools(tools)
    if approval_names := [tool.name for tool in function_tools if policy.may_need_approval(tool)]:
        raise ValueError(
            "a custom tool cannot pause the run, and calls may need approval:"
            f" {', '.join(approval_names[:5])}. Use code_mode(...), whose input is JSON"
        )
    config = CodeModeToolConfig(make_agent_options(options, pool, listing, state), policy, pool, state, on_stream)
    return ProgramFunctionTool(function_tools, config, ProgramAgent.create()).as_custom_tool()


def make_agent_options(
    options: OptionsLike, pool: WorkerPool | None, listing: Listing | None, state: Any, store: StoreLike | None = None
) -> CodeModeOptions:
    """Return options with the defaults for agents: approvals pause the run, and tool time does not count."""
    agent_options = configure_agent_options(options, pool=pool, listing=listing, store=store)
    return agent_options if state is None else agent_options.with_parts(state=_return_no_state)


def _return_no_state(_conversation_id: str | None) -> None:
    """Return None: each call has its own state backend."""


@dataclass(frozen=True)
class CodeModeToolConfig:
    """Settings of a codeMode tool, except the tools that programs call."""

    settings: CodeModeOptions
    approvals: ApprovalPolicy
    pool: WorkerPool | None
    state: StateFactory | None
    on_stream: OnStream | None
    library: ProgramLibrary | None = None


def make_agent_tool(agent: ProgramAgent, description: str) -> FunctionTool:
    """Return the agent as a tool, through which the SDK stores pauses and reports interruptions."""
    return agent.as_tool(
        TOOL_NAME,
        description,
        custom_output_extractor=_return_empty_output,
        max_turns=_MAX_PAUSES,
        hooks=ContextCapturingHooks(),
        failure_error_function=None,
        parameters=ProgramInput,
    )


class ProgramFunctionTool:
    """The codeMode tool over a set of tools."""

    def __init__(
        self,
        tools: Iterable[FunctionTool],
        config: CodeModeToolConfig,
        agent: ProgramAgent,
        output_schemas: Mapping[str, Any] | None = None,
    ) -> None:
        sdk_internals.load_sdk_functions()
        self._tools = {tool.name: tool for tool in tools}
        self._config = config
        schemas = output_schemas or {}
        program_tools = [self._convert_program_tool(tool, schemas.get(tool.name)) for tool in self._tools.values()]
        self._core = create_core_tool(program_tools, config.settings, pool=config.pool, library=config.library)
        self._agent = agent
        agent.add_approval_tools(self._tools.values())
        if config.settings.execution_policy.values == "json":  # rich inputs are tagged
            agent.add_validated_tools(program_tools)
        if config.library is not None and config.library.model_saves:
            agent.add_approval_tool(SAVE_TOOL_NAME)
        self._call_data: WeakKeyDictionary[ToolContext[Any], dict[str, Any]] = WeakKeyDictionary()
        self.tool = make_agent_tool(agent, self._core.description)
        self._invoke_agent = self.tool.on_invoke_tool
        self.tool.params_json_schema = self._core.input_schema
        self.tool.on_invoke_tool = self._invoke
        self.tool.custom_data_extractor = self._take_call_data

    def as_custom_tool(self) -> CustomTool:
        """Return the custom tool, whose input is the program as raw text."""
        definition = self._core.as_openai_custom_tool().definition
        return CustomTool(TOOL_NAME, definition["description"], self._invoke_raw, format=definition["format"])

    async def _invoke_raw(self, context: ToolContext[Any], program: str) -> str:
        output = await self._invoke(context, json.dumps({"js": program}))
        if output is None:
            raise UserError("A call of the program needs approval, and a custom tool cannot pause the run.")
        # The text describes the images.
        return output if isinstance(output, str) else cast("str", output[0].text)

    def with_tools(self, tools: Iterable[FunctionTool]) -> ProgramFunctionTool:
        """Return a copy over other tools with the same descriptions: several agents share one compiled tool."""
        copied = copy.copy(self)
        copied._tools = {tool.name: tool for tool in tools}  # noqa: SLF001 - of the same class
        copied.tool = copy.copy(self.tool)
        copied.tool.on_invoke_tool = copied._invoke  # noqa: SLF001 - as above
        copied.tool.description = self._core.description  # lists the saved programs of now
        return copied

    def _convert_program_tool(self, tool: FunctionTool, output_schema: Any) -> Tool:
        name = tool.name

        async def needs_approval(arguments: Any, context: ToolCallContext) -> bool:
            return await context.context.needs_approval(name, arguments or {}, context)

        # A run-wide rejection is checked for tools without approval rules too.
        return convert_tool(
            tool, needs_approval if self._config.approvals.may_need_approval(tool) else False, output_schema
        )

    async def _invoke(self, context: ToolContext[Any], arguments: str) -> Any:
        js = _parse_program(arguments)
        if js is None:
            return 'The input of codeMode is {"js": "<program>"} and nothing else.'
        config = self._config
        log = CallLog(context, self._agent, config.on_stream)
        call_state = None if config.state is None else config.state(context)
        call = OuterCall(self._core, self._tools, config.approvals, context, js, log, call_state)
        token = ACTIVE_PROGRAM.set(ActiveProgram(call))
        delivery = asyncio.ensure_future(log.deliver_events())
        try:
            await self._invoke_agent(_create_agent_context(context), arguments)
            log.stop_delivery()
            await delivery
        finally:
            ACTIVE_PROGRAM.reset(token)
            delivery.cancel()
        return self._store_call_data_and_make_output(call, context, log)

    def _store_call_data_and_make_output(self, call: OuterCall, context: ToolContext[Any], log: CallLog) -> Any:
        if call.error is not None:
            raise call.error
        if not call.is_finished:
            return None  # the SDK reports the interruptions
        status = "completed" if call.failure is None else "failed"
        self._call_data[context] = {"codemode": {"status": status, "calls": log.records}}
        if call.failure is not None:
            return call.failure
        text = call.value if isinstance(call.value, str) else json.dumps(call.value, ensure_ascii=False)
        return [ToolOutputText(text=text), *map(to_tool_output, call.parts)] if call.parts else text

    def _take_call_data(self, finished: FunctionToolCustomDataContext) -> dict[str, Any] | None:
        return self._call_data.pop(finished.tool_context, None)


def _create_agent_context(context: ToolContext[Any]) -> ToolContext[Any]:
    """Return the context for the program's agent, without the run's model settings, guardrails and filters."""
    run_config = context.run_config or RunConfig()
    agent_run_config = dataclasses.replace(
        run_config,
        model=None,
        model_settings=None,
        input_guardrails=None,
        output_guardrails=None,
        call_model_input_filter=None,
        session_input_callback=None,
        sandbox=None,
    )
    copy_context = partial(ToolContext.from_agent_context, context, context.tool_call_id)
    return copy_context(
        tool_call=context.tool_call,
        agent=context.agent,
        tool_name=context.tool_name,
        tool_arguments=context.tool_arguments,
        run_config=agent_run_config,
    )


def _parse_program(arguments: str) -> str | None:
    try:
        parsed: Any = json.loads(arguments)
    except ValueError:
        return None
    fields = cast("dict[str, Any]", CodeModeTool.fill_program_field(parsed, "js") if isinstance(parsed, dict) else {})
    js = fields.get("js")
    return js if isinstance(js, str) and len(fields) == 1 else None


async def _return_empty_output(_result: Any) -> str:
    return ""
