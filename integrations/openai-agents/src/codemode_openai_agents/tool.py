"""The tool of the SDK that a model sees of code mode: made once, over the tools of an agent."""

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

from . import sdk
from .approvals import ApprovalRules, Approvals
from .content import shown
from .conversion import convert, tools_of
from .outer_call import CallLog, OnStream, OuterCall
from .pauses import CURRENT, NAME, SAVE, Holding, HoldingAgent, Hooks

_MAX_PAUSES = 1_000_000

Options: TypeAlias = CodeModeOptions | Mapping[str, Any] | None
StateOf: TypeAlias = Callable[[ToolContext[Any]], Any]


class Program(BaseModel):
    """The input of codeMode."""

    js: str


def code_mode(
    tools: Iterable[Any],
    options: Options = None,
    *,
    approve: ApprovalRules | None = None,
    pool: WorkerPool | None = None,
    listing: Listing | None = None,
    state: StateOf | None = None,
    on_stream: OnStream | None = None,
    store: StoreLike | None = None,
    library: ProgramLibrary | None = None,
) -> FunctionTool:
    """Make one function tool, ``codeMode``, of many: a model writes programs that call them.

    ``tools``: function tools and functions. ``options``: `CodeModeOptions` or a mapping. ``approve`` says which calls a
    person decides about, beside the tools' own ``needs_approval``: a mapping of names to True or to a function
    ``(context, arguments, call_id) -> bool``; a function ``(name, arguments) -> bool``; or "destructive", for what MCP
    servers do not declare harmless. ``pool``: the `WorkerPool` that runs programs. ``listing`` is
    ``execution_policy.listing``. ``state``: ``(context) -> mapping or place`` of what programs leave for later ones.
    ``on_stream`` is called with an `AgentToolStreamEvent` for each call of a program, when it begins and when it ends.
    ``store`` is as in `codemode.create_code_mode_tool`: any process that has the key and the kept state resumes, and
    only one does. ``library``: saved programs, as there; what the model reads of them is that of when this was made.
    Raises `ValueError` for wrong options and rules, and for what is no function tool.
    """
    rules = Approvals(approve)
    wrapped = tools_of(tools)
    rules.require_known([one.name for one in wrapped])
    made = Making(settings_of(options, pool, listing, state, store), rules, pool, state, on_stream, library)
    return ToolInCodeMode(wrapped, made, HoldingAgent.new()).tool


def code_mode_custom_tool(
    tools: Iterable[Any],
    options: Options = None,
    *,
    pool: WorkerPool | None = None,
    listing: Listing | None = None,
    state: StateOf | None = None,
    on_stream: OnStream | None = None,
) -> CustomTool:
    """Make the same as a custom tool of the Responses API: the model writes programs as raw text, not inside JSON.

    Parameters are those of `code_mode`. The SDK cannot pause a run in a custom tool and gives a model its text alone.
    Raises `ValueError` for a tool whose calls a person may have to decide about, as well as where `code_mode` does.
    """
    rules = Approvals(None)
    wrapped = tools_of(tools)
    if asking := [one.name for one in wrapped if rules.may_ask(one)]:
        raise ValueError(
            f"a custom tool cannot pause the run, and a person may have to approve calls of {', '.join(asking[:5])}:"
            " use code_mode(...), whose input is JSON"
        )
    made = Making(settings_of(options, pool, listing, state), rules, pool, state, on_stream)
    return ToolInCodeMode(wrapped, made, HoldingAgent.new()).as_custom_tool()


def settings_of(
    options: Options, pool: WorkerPool | None, listing: Listing | None, state: Any, store: StoreLike | None = None
) -> CodeModeOptions:
    """Return the options of programs that agents run: approvals pause the run, and tools take time of their own."""
    made = configure_agent_options(options, pool=pool, listing=listing, store=store)
    return made if state is None else made.having(state=_no_place)


def _no_place(_conversation_id: str | None) -> None:
    """Give no place: each call brings its own."""


@dataclass(frozen=True)
class Making:
    """What a tool is made with, beside the tools behind it."""

    settings: CodeModeOptions
    approvals: Approvals
    pool: WorkerPool | None
    state: StateOf | None
    on_stream: OnStream | None
    library: ProgramLibrary | None = None


def tool_of(agent: HoldingAgent, description: str) -> FunctionTool:
    """Return the agent as a tool, through which the SDK keeps and asks what waits."""
    return agent.as_tool(
        NAME,
        description,
        custom_output_extractor=_nothing,
        max_turns=_MAX_PAUSES,
        hooks=Hooks(),
        failure_error_function=None,
        parameters=Program,
    )


class ToolInCodeMode:
    """A set of tools in code mode, and the tool that stands for it."""

    def __init__(
        self,
        tools: Iterable[FunctionTool],
        making: Making,
        agent: HoldingAgent,
        declared: Mapping[str, Any] | None = None,
    ) -> None:
        sdk.internals()
        self._tools = {one.name: one for one in tools}
        self._making = making
        outputs = declared or {}
        converted = [self._converted(one, outputs.get(one.name)) for one in self._tools.values()]
        self._core = create_core_tool(converted, making.settings, pool=making.pool, library=making.library)
        self._agent = agent
        agent.learn(self._tools.values())
        if making.library is not None and making.library.model_saves:
            agent.learn_name(SAVE)
        self._data: WeakKeyDictionary[ToolContext[Any], dict[str, Any]] = WeakKeyDictionary()
        self.tool = tool_of(agent, self._core.description)
        self._through_agent = self.tool.on_invoke_tool
        self.tool.params_json_schema = self._core.input_schema
        self.tool.on_invoke_tool = self._invoke
        self.tool.custom_data_extractor = self._custom_data

    def as_custom_tool(self) -> CustomTool:
        """Return the tool whose input is a program as raw text."""
        definition = self._core.as_openai_custom_tool().definition
        return CustomTool(NAME, definition["description"], self._invoke_raw, format=definition["format"])

    async def _invoke_raw(self, context: ToolContext[Any], program: str) -> str:
        output = await self._invoke(context, json.dumps({"js": program}))
        if output is None:
            raise UserError("A call of the program waits for a person, and a custom tool cannot pause the run.")
        # Images have a description in the text.
        return output if isinstance(output, str) else cast("str", output[0].text)

    def having(self, tools: Iterable[FunctionTool]) -> ToolInCodeMode:
        """Return the same over these, which are described as those are that it was made of.

        Runs of several agents share one, side by side, and each has tools of its own.
        """
        made = copy.copy(self)
        made._tools = {one.name: one for one in tools}  # noqa: SLF001 - of the same class
        made.tool = copy.copy(self.tool)
        made.tool.on_invoke_tool = made._invoke  # noqa: SLF001 - as above
        made.tool.description = self._core.description  # saved programs come and go
        return made

    def _converted(self, tool: FunctionTool, declared: Any) -> Tool:
        name = tool.name

        async def asks(arguments: Any, context: ToolCallContext) -> bool:
            return await context.context.asks(name, arguments or {}, context)

        # A tool of which nothing is asked may still be rejected for the whole run, which costs nothing to look up.
        return convert(tool, asks if self._making.approvals.may_ask(tool) else False, declared)

    async def _invoke(self, context: ToolContext[Any], arguments: str) -> Any:
        js = _program_in(arguments)
        if js is None:
            return 'The input of codeMode is {"js": "<program>"} and nothing else.'
        making = self._making
        log = CallLog(context, self._agent, making.on_stream)
        place = None if making.state is None else making.state(context)
        call = OuterCall(self._core, self._tools, making.approvals, context, js, log, place)
        token = CURRENT.set(Holding(call))
        listening = asyncio.ensure_future(log.listen())
        try:
            await self._through_agent(_context_of(context), arguments)
            log.finish()
            await listening
        finally:
            CURRENT.reset(token)
            listening.cancel()
        return self._output(call, context, log)

    def _output(self, call: OuterCall, context: ToolContext[Any], log: CallLog) -> Any:
        if call.error is not None:
            raise call.error
        if not call.has_ended:
            return None  # the SDK asks about what waits
        status = "completed" if call.failure is None else "failed"
        self._data[context] = {"codemode": {"status": status, "calls": log.listed}}
        if call.failure is not None:
            return call.failure
        text = call.value if isinstance(call.value, str) else json.dumps(call.value, ensure_ascii=False)
        return [ToolOutputText(text=text), *map(shown, call.parts)] if call.parts else text

    def _custom_data(self, ended: FunctionToolCustomDataContext) -> dict[str, Any] | None:
        return self._data.pop(ended.tool_context, None)


def _context_of(context: ToolContext[Any]) -> ToolContext[Any]:
    """Return the context for the agent of a paused program: what a run says of its models is not for that one."""
    given = context.run_config or RunConfig()
    own = dataclasses.replace(
        given,
        model=None,
        model_settings=None,
        input_guardrails=None,
        output_guardrails=None,
        call_model_input_filter=None,
        session_input_callback=None,
        sandbox=None,
    )
    again = partial(ToolContext.from_agent_context, context, context.tool_call_id)
    return again(
        tool_call=context.tool_call,
        agent=context.agent,
        tool_name=context.tool_name,
        tool_arguments=context.tool_arguments,
        run_config=own,
    )


def _program_in(arguments: str) -> str | None:
    try:
        given: Any = json.loads(arguments)
    except ValueError:
        return None
    said = cast("dict[str, Any]", CodeModeTool.fill_program_field(given, "js") if isinstance(given, dict) else {})
    js = said.get("js")
    return js if isinstance(js, str) and len(said) == 1 else None


async def _nothing(_result: Any) -> str:
    return ""
