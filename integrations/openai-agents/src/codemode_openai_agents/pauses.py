"""Represent a paused program as an agent, so that the SDK's run state stores its pauses.

The agent's `Model` is the program, not a language model: a turn runs the program to its next pause and returns the
pending calls as tool calls that need approval; a final message means that the program finished. The SDK's
interruptions, decisions, ``to_json`` and ``from_json`` then work as for any agent used as a tool. The program makes the
approved calls, not the SDK.
"""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias, cast

from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelBehaviorError,
    ModelResponse,
    RunContextWrapper,
    RunHooks,
    Tool,
    ToolApprovalItem,
    Usage,
    UserError,
    tool_namespace,
)
from agents.tool_context import ToolContext
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)

from codemode import CodeModeToolError, Interrupt, PendingRequest
from codemode import Tool as CoreTool
from codemode.plugins import PreparedTool, run_off_loop_if_large

from .approvals import AGENT_PAUSE_KIND, create_edit_id, format_agent_namespace, iterate_agent_tool_names
from .content import make_function_call_async
from .sdk_internals import get_tool_agent

TOOL_NAME = "codeMode"
UNKNOWN_OUTCOME = "unknown.outcome"
"""Namespace of calls of unknown outcome: "always approve" does not run them again."""
SAVE_TOOL_NAME = "saved.$save"
"""The call with which a program saves a program; each one needs approval, even after "always approve"."""
_PERMANENT_SAVE_MESSAGE = "saving programs is approved one by one, never for always"
_CONTINUATION_ID_PREFIX = "rs_codemode_"


@dataclass(frozen=True)
class Decision:
    """The decision about one pending call.

    ``message``: the SDK's message for a rejected call. ``is_for_all``: the decision covers later calls of the tool.
    """

    edit_id: str
    is_approved: bool
    message: str
    is_for_all: bool = False


DecisionReader: TypeAlias = Callable[[Interrupt], Awaitable[dict[str, Decision]]]
"""Return the decisions about the pending calls of an interrupt, by call id."""


class PausableProgram(Protocol):
    """A program that runs from pause to pause."""

    async def start(self) -> Interrupt | None:
        """Run to the first pause; None if the program finished."""
        ...

    async def resume(self, continuation: Any, decide: DecisionReader) -> Interrupt | None:
        """Resume a pause. ``decide`` raises `UserError` if the decisions are about other calls."""
        ...


class ActiveProgram:
    """The program of one outer call while its agent runs."""

    def __init__(self, program: PausableProgram) -> None:
        self.program = program
        self.context: RunContextWrapper[Any] | None = None
        self.agent: Any = None


ACTIVE_PROGRAM: ContextVar[ActiveProgram] = ContextVar("codemode_openai_agents_program")


class ContextCapturingHooks(RunHooks[Any]):
    """Pass the run context, which holds the decisions, to the program: the SDK gives a `Model` none."""

    async def on_llm_start(self, context: RunContextWrapper[Any], agent: Any, *_: Any, **__: Any) -> None:
        """Store the context of the starting turn."""
        active = ACTIVE_PROGRAM.get()
        active.context, active.agent = context, agent
        if isinstance(context, ToolContext) and context.tool_call is not None:
            # The SDK caches a paused run until its call object is garbage-collected; a copy lets the call go.
            context.tool_call = copy.copy(context.tool_call)


class ProgramModel(Model):
    """The agent's model: each response runs the program to its next pause."""

    async def get_response(
        self,
        system_instructions: str | None,  # noqa: ARG002 - as above
        input: str | list[Any],  # noqa: A002 - as above
        *_: Any,
        **__: Any,
    ) -> ModelResponse:
        """Start or resume the program; return its pending calls or the final message."""
        active = ACTIVE_PROGRAM.get()
        items: list[dict[str, Any]] = []
        if isinstance(input, list):
            items = [cast("dict[str, Any]", item) for item in input if isinstance(item, dict)]
        continuation_text = _find_latest_continuation(items)
        if continuation_text is None:
            if any(item.get("type") == "function_call" for item in items):
                raise UserError("The run state lacks the continuation of a paused codeMode call.")
            paused = await active.program.start()
        else:
            continuation = await run_off_loop_if_large(continuation_text, lambda: json.loads(continuation_text))
            paused = await active.program.resume(continuation, partial(_read_decisions, items, active))
        output = _create_final_message() if paused is None else await _create_pause_items(paused)
        return ModelResponse(output=cast("Any", output), usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Raise `NotImplementedError`: the SDK does not stream this agent."""
        raise NotImplementedError


@dataclass
class ProgramAgent(Agent[Any]):
    """The agent that represents paused programs; it requests approval for calls of the tools added to it."""

    approval_tools: dict[str, FunctionTool] = field(default_factory=dict[str, FunctionTool])
    agent_tools: dict[str, FunctionTool] = field(default_factory=dict[str, FunctionTool])
    validated_tools: dict[str, PreparedTool | None] = field(default_factory=dict[str, "PreparedTool | None"])

    @classmethod
    def create(cls) -> ProgramAgent:
        """Create an agent without tools."""
        return cls(name=TOOL_NAME, model=ProgramModel())

    def add_approval_tools(self, tools: Iterable[FunctionTool]) -> None:
        """Add tools whose calls may need approval."""
        for tool in tools:
            self.add_approval_tool(tool.name)
            if get_tool_agent(tool) is not None:
                self.agent_tools[tool.name] = tool

    def add_approval_tool(self, name: str) -> None:
        """Add a callable that is no tool of the SDK, by name."""
        self.approval_tools.setdefault(name, _create_approval_tool(name))

    def add_validated_tools(self, tools: Iterable[CoreTool]) -> None:
        """Add tools that validate edited inputs before the program resumes; none does for a name with two schemas."""
        for tool in map(PreparedTool.from_tool, tools):
            known = self.validated_tools.setdefault(tool.name, tool)
            if known is not None and known.input_json_schema != tool.input_json_schema:
                self.validated_tools[tool.name] = None

    def validate_edited_input(self, name: str, edited_input: Any, displayed_input: Any) -> None:
        """Raise `ValueError` for an edited input that the tool does not accept. Unknown tools accept any."""
        tool = self.validated_tools.get(name)
        try:
            if tool is not None:
                tool.validate_edited_input(edited_input, displayed_input)
        except CodeModeToolError as error:
            raise ValueError(f"the edited input is wrong: {error.message}. The call is still undecided") from error

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """Return a stand-in for each tool, and one for each tool of inner agents in its agent's namespace."""
        approval_tools: list[Tool] = list(self.approval_tools.values())
        unknown_outcome_tools = [_create_approval_tool(name) for name in self.approval_tools if name != UNKNOWN_OUTCOME]
        approval_tools += tool_namespace(
            name=UNKNOWN_OUTCOME, description="Calls that may have happened.", tools=unknown_outcome_tools
        )
        for tool in self.agent_tools.values():
            names = dict.fromkeys([name async for name in iterate_agent_tool_names([tool], run_context)])
            namespace = format_agent_namespace(tool.name)
            agent_approval_tools = [_create_approval_tool(name) for name in names if name != namespace]
            approval_tools += tool_namespace(name=namespace, description=tool.name, tools=agent_approval_tools)
        return approval_tools


def _create_approval_tool(name: str) -> FunctionTool:
    return FunctionTool(
        name=name,
        description="",
        params_json_schema={"type": "object"},
        on_invoke_tool=_skip_execution,
        strict_json_schema=False,
        needs_approval=True,
    )


async def _skip_execution(_context: Any, _arguments: str) -> str:
    return ""  # the program makes the call after it reads the approval


async def _create_pause_items(interrupt: Interrupt) -> list[Any]:
    continuation = interrupt.continuation
    text = await run_off_loop_if_large(continuation, lambda: json.dumps(continuation))
    continuation_item = ResponseReasoningItem(
        id=f"{_CONTINUATION_ID_PREFIX}{interrupt.requests[0].interrupt_id}",
        summary=[],
        type="reasoning",
        encrypted_content=text,
    )
    calls = await _create_pending_calls(interrupt)
    return [
        continuation_item,
        *(call if call.id else call.model_copy(update={"id": create_edit_id()}) for call in calls),
    ]


async def _create_pending_calls(interrupt: Interrupt) -> list[ResponseFunctionToolCall]:
    """Return the pending calls of an interrupt; those whose input cannot be edited have an id."""
    calls: list[ResponseFunctionToolCall] = []
    for request in interrupt.requests:
        if request.payload.get("kind") == AGENT_PAUSE_KIND:
            calls += [
                _create_agent_call(request, index, agent_call)
                for index, agent_call in enumerate(request.payload["waiting"])
            ]
        else:
            arguments: Any = request.input if request.input is not None else {}
            call = await make_function_call_async(request.tool_name, request.interrupt_id, arguments)
            is_unknown = request.payload.get("kind") == PendingRequest.UNKNOWN_OUTCOME
            unknown_outcome_fields = {"namespace": UNKNOWN_OUTCOME, "id": _make_item_id(call.call_id)}
            calls.append(call.model_copy(update=unknown_outcome_fields) if is_unknown else call)
    return calls


def _create_agent_call(request: PendingRequest, index: int, agent_call: Mapping[str, Any]) -> ResponseFunctionToolCall:
    """Return a pending call of an agent behind a tool."""
    call_id = format_agent_call_id(request.interrupt_id, index)
    return ResponseFunctionToolCall(
        id=None if agent_call["can_edit_input"] else _make_item_id(call_id),
        call_id=call_id,
        name=agent_call["name"],
        namespace=format_agent_namespace(request.tool_name),
        arguments=agent_call["arguments"] or "{}",
        type="function_call",
    )


def _make_item_id(call_id: str) -> str:
    return f"fc_{call_id}"


def format_agent_call_id(interrupt_id: str, index: int) -> str:
    """Return the id of a pending call of an agent behind a tool."""
    return f"{interrupt_id}/{index}"


def _create_final_message() -> list[Any]:
    text = ResponseOutputText(text="done", type="output_text", annotations=[])
    return [ResponseOutputMessage(id="msg", content=[text], role="assistant", status="completed", type="message")]


def _find_latest_continuation(items: list[dict[str, Any]]) -> str | None:
    """Return the newest continuation in the agent's history; None before the first pause."""
    continuation_items = [
        item for item in items if item.get("type") == "reasoning" and isinstance(item.get("encrypted_content"), str)
    ]
    return continuation_items[-1]["encrypted_content"] if continuation_items else None


async def _read_decisions(
    items: list[dict[str, Any]], active: ActiveProgram, interrupt: Interrupt
) -> dict[str, Decision]:
    """Return the run's decisions about the pending calls. The calls come from the continuation: a state is unsigned."""
    run_context = active.context
    assert run_context is not None  # noqa: S101 - set by the hooks
    outputs = {item["call_id"]: item for item in items if item.get("type") == "function_call_output"}
    edit_ids = {item["call_id"]: str(item.get("id", "")) for item in items if item.get("type") == "function_call"}
    decisions: dict[str, Decision] = {}
    for call in await _create_pending_calls(interrupt):
        name = f"{call.namespace}.{call.name}" if call.namespace else call.name
        is_approved = _get_approval_status(run_context, ToolApprovalItem(active.agent, call))
        if is_approved is None or call.call_id not in edit_ids:
            raise UserError(f"the decision is not about the pending call of {name!r} of this program")
        # A random call id has a decision only if one covers all calls.
        is_for_all = run_context.is_tool_approved(name, secrets.token_hex(16)) is is_approved
        is_permanent_save = name == SAVE_TOOL_NAME and is_for_all and is_approved
        decisions[call.call_id] = Decision(
            edit_id=edit_ids[call.call_id],
            is_approved=is_approved and not is_permanent_save,
            message=_PERMANENT_SAVE_MESSAGE
            if is_permanent_save
            else str(outputs.get(call.call_id, {}).get("output", "")),
            is_for_all=is_for_all and not is_permanent_save,
        )
    return decisions


def _get_approval_status(run_context: RunContextWrapper[Any], item: ToolApprovalItem) -> bool | None:
    call = cast("ResponseFunctionToolCall", item.raw_item)
    try:
        return run_context.get_approval_status(
            call.name, call.call_id, tool_namespace=call.namespace, current_invocation=item
        )
    except ModelBehaviorError:  # another call has this id
        return None
