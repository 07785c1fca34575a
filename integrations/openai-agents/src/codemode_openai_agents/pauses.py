"""A paused program as an agent of the SDK: what waits are its calls, and the run's own state keeps them.

The agent has no language model. Its `Model` is the program: a turn runs it up to its next pause, and asks for the calls
that wait there; the last word of it means that it has ended. So interruptions, decisions, ``to_json`` and ``from_json``
are the SDK's own for agents behind tools. The calls that it asks for are not made by the SDK: those run in the program.
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

from codemode import Interrupt, PendingRequest
from codemode.plugins import run_bounded

from .approvals import AGENT_KIND, names_behind, namespace_of, new_mark
from .content import made_call
from .sdk import agent_behind

NAME = "codeMode"
UNKNOWN_OUTCOME = "unknown.outcome"
"""The namespace of calls that had begun when a process died: what was approved for always does not repeat them."""
SAVE = "saved.$save"
"""What programs call to have a program saved: each call is asked about, whatever was approved for always."""
_SAVED_ONE_BY_ONE = "saving programs is approved one by one, never for always"
_CARRIER = "rs_codemode_"


@dataclass(frozen=True)
class Decision:
    """What was decided about a call that waited. ``said`` is what the SDK would tell a model of a rejected one.

    ``is_for_all``: about later calls of the tool too.
    """

    mark: str
    is_approved: bool
    said: str
    is_for_all: bool = False


Decide: TypeAlias = Callable[[Interrupt], Awaitable[dict[str, Decision]]]
"""Returns what was decided about the calls that a pause waits with, by their ids."""


class HeldProgram(Protocol):
    """A program between its turns."""

    async def begin(self) -> Interrupt | None:
        """Run it up to its first pause; None when it has ended."""
        ...

    async def go_on(self, continuation: Any, decide: Decide) -> Interrupt | None:
        """Do the same from a pause. ``decide`` raises `UserError` where something else was decided about."""
        ...


class Holding:
    """The program of one call of the model, while its agent runs."""

    def __init__(self, program: HeldProgram) -> None:
        self.program = program
        self.context: RunContextWrapper[Any] | None = None
        self.agent: Any = None


CURRENT: ContextVar[Holding] = ContextVar("codemode_openai_agents_program")


class Hooks(RunHooks[Any]):
    """Gives the model of the agent the context in which decisions are kept: models are given none."""

    async def on_llm_start(self, context: RunContextWrapper[Any], agent: Any, *_: Any, **__: Any) -> None:
        """Note the context of the turn that begins."""
        holding = CURRENT.get()
        holding.context, holding.agent = context, agent
        if isinstance(context, ToolContext) and context.tool_call is not None:
            # The SDK keeps a run that pauses until the very call is gone which it is of: so the run must not know it.
            context.tool_call = copy.copy(context.tool_call)


class ProgramModel(Model):
    """The model of the agent."""

    async def get_response(
        self,
        system_instructions: str | None,  # noqa: ARG002 - as above
        input: str | list[Any],  # noqa: A002 - as above
        *_: Any,
        **__: Any,
    ) -> ModelResponse:
        """Take a turn."""
        holding = CURRENT.get()
        items: list[dict[str, Any]] = []
        if isinstance(input, list):
            items = [cast("dict[str, Any]", one) for one in input if isinstance(one, dict)]
        carried = _carried(items)
        if carried is None:
            if any(one.get("type") == "function_call" for one in items):
                raise UserError("The continuation of a paused codeMode call is missing in the state of its run.")
            paused = await holding.program.begin()
        else:
            continuation = await run_bounded(carried, lambda: json.loads(carried))
            paused = await holding.program.go_on(continuation, partial(_decisions, items, holding))
        output = _last_word() if paused is None else await _waiting(paused)
        return ModelResponse(output=cast("Any", output), usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Refuse: agents behind tools are streamed only when they are asked to."""
        raise NotImplementedError


@dataclass
class HoldingAgent(Agent[Any]):
    """The agent that stands for the paused programs of a model. It asks for calls of any tool that it has `learned`."""

    asked_for: dict[str, FunctionTool] = field(default_factory=dict[str, FunctionTool])
    behind: dict[str, FunctionTool] = field(default_factory=dict[str, FunctionTool])

    @classmethod
    def new(cls) -> HoldingAgent:
        """Return one."""
        return cls(name=NAME, model=ProgramModel())

    def learn(self, tools: Iterable[FunctionTool]) -> None:
        """Let it ask for calls of these too."""
        for one in tools:
            self.learn_name(one.name)
            if agent_behind(one) is not None:
                self.behind[one.name] = one

    def learn_name(self, name: str) -> None:
        """Let it ask for calls of what is no tool of the SDK's."""
        self.asked_for.setdefault(name, _asked_for(name))

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """Return what stands for the tools, and for those of agents behind them, in a namespace of each such tool."""
        shown: list[Tool] = list(self.asked_for.values())
        begun = [_asked_for(name) for name in self.asked_for if name != UNKNOWN_OUTCOME]
        shown += tool_namespace(name=UNKNOWN_OUTCOME, description="Calls that may have happened.", tools=begun)
        for tool in self.behind.values():
            names = dict.fromkeys([name async for name in names_behind([tool], run_context)])
            namespace = namespace_of(tool.name)
            stands = [_asked_for(name) for name in names if name != namespace]
            shown += tool_namespace(name=namespace, description=tool.name, tools=stands)
        return shown


def _asked_for(name: str) -> FunctionTool:
    return FunctionTool(
        name=name,
        description="",
        params_json_schema={"type": "object"},
        on_invoke_tool=_noted,
        strict_json_schema=False,
        needs_approval=True,
    )


async def _noted(_context: Any, _arguments: str) -> str:
    return ""  # the program makes the call, once it has read that it was approved


async def _waiting(paused: Interrupt) -> list[Any]:
    continuation = paused.continuation
    text = await run_bounded(continuation, lambda: json.dumps(continuation))
    carrier = ResponseReasoningItem(
        id=f"{_CARRIER}{paused.requests[0].interrupt_id}", summary=[], type="reasoning", encrypted_content=text
    )
    calls = await _calls(paused)
    return [carrier, *(one if one.id else one.model_copy(update={"id": new_mark()}) for one in calls)]


async def _calls(paused: Interrupt) -> list[ResponseFunctionToolCall]:
    """Return what a pause waits with, as it is shown. What runs with no other input has an id."""
    calls: list[ResponseFunctionToolCall] = []
    for one in paused.requests:
        if one.payload.get("kind") == AGENT_KIND:
            calls += [_inner_call(one, number, inner) for number, inner in enumerate(one.payload["waiting"])]
        else:
            given: Any = one.input if one.input is not None else {}
            call = await made_call(one.tool_name, one.interrupt_id, given)
            is_unknown = one.payload.get("kind") == PendingRequest.UNKNOWN_OUTCOME
            begun = {"namespace": UNKNOWN_OUTCOME, "id": _fixed(call.call_id)}
            calls.append(call.model_copy(update=begun) if is_unknown else call)
    return calls


def _inner_call(request: PendingRequest, number: int, inner: Mapping[str, Any]) -> ResponseFunctionToolCall:
    """Return a call that an agent behind a tool waits to make."""
    call_id = inner_id(request.interrupt_id, number)
    return ResponseFunctionToolCall(
        id=None if inner["may_be_edited"] else _fixed(call_id),
        call_id=call_id,
        name=inner["name"],
        namespace=namespace_of(request.tool_name),
        arguments=inner["arguments"] or "{}",
        type="function_call",
    )


def _fixed(call_id: str) -> str:
    return f"fc_{call_id}"


def inner_id(interrupt_id: str, number: int) -> str:
    """Return the id of a call that waits in an agent behind a tool."""
    return f"{interrupt_id}/{number}"


def _last_word() -> list[Any]:
    said = ResponseOutputText(text="done", type="output_text", annotations=[])
    return [ResponseOutputMessage(id="msg", content=[said], role="assistant", status="completed", type="message")]


def _carried(items: list[dict[str, Any]]) -> str | None:
    """Return the newest continuation in the agent's history; None before the first pause."""
    kept = [one for one in items if one.get("type") == "reasoning" and isinstance(one.get("encrypted_content"), str)]
    return kept[-1]["encrypted_content"] if kept else None


async def _decisions(items: list[dict[str, Any]], holding: Holding, paused: Interrupt) -> dict[str, Decision]:
    """Return what the run says of the calls of a pause: as the pause has them, for a state is easily changed."""
    held = holding.context
    assert held is not None  # noqa: S101 - the hooks have seen the turn begin
    told = {one["call_id"]: one for one in items if one.get("type") == "function_call_output"}
    marks = {one["call_id"]: str(one.get("id", "")) for one in items if one.get("type") == "function_call"}
    decisions: dict[str, Decision] = {}
    for call in await _calls(paused):
        name = f"{call.namespace}.{call.name}" if call.namespace else call.name
        is_approved = _status(held, ToolApprovalItem(holding.agent, call))
        if is_approved is None or call.call_id not in marks:
            raise UserError(f"what was shown and decided is not the call of {name!r} with which this program waits")
        # A call that nobody has asked about is decided when all are.
        is_for_all = held.is_tool_approved(name, secrets.token_hex(16)) is is_approved
        is_refused = name == SAVE and is_for_all and is_approved
        decisions[call.call_id] = Decision(
            mark=marks[call.call_id],
            is_approved=is_approved and not is_refused,
            said=_SAVED_ONE_BY_ONE if is_refused else str(told.get(call.call_id, {}).get("output", "")),
            is_for_all=is_for_all and not is_refused,
        )
    return decisions


def _status(held: RunContextWrapper[Any], item: ToolApprovalItem) -> bool | None:
    call = cast("ResponseFunctionToolCall", item.raw_item)
    try:
        return held.get_approval_status(call.name, call.call_id, tool_namespace=call.namespace, current_invocation=item)
    except ModelBehaviorError:  # the id is that of a call with other arguments
        return None
