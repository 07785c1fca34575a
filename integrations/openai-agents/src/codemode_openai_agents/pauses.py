"""A paused program as an agent of the SDK: what waits are its calls, and the run's own state keeps them.

The agent has no language model. Its `Model` is the program: a turn runs it up to its next pause, and asks for the calls
that wait there; the last word of it means that it has ended. So interruptions, decisions, ``to_json`` and ``from_json``
are the SDK's own for agents behind tools. The calls that it asks for are not made by the SDK: those run in the program.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from agents import Agent, FunctionTool, Model, ModelResponse, RunContextWrapper, RunHooks, Tool, Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)

from codemode import Interrupt

from .approvals import new_mark
from .nested import call_of

NAME = "codeMode"
_CARRIER = "rs_codemode_"


@dataclass(frozen=True)
class Decision:
    """What was decided about a call that waited. ``said`` is what the SDK would tell a model of a rejected one."""

    mark: str
    is_approved: bool
    said: str


class HeldProgram(Protocol):
    """A program between its turns."""

    async def begin(self) -> Interrupt | None:
        """Run it up to its first pause; None when it has ended."""
        ...

    async def go_on(self, continuation: Any, decisions: dict[str, Decision], held: RunContextWrapper[Any]) -> Any:
        """Do the same from a pause. ``held`` is the context in which the SDK keeps decisions."""
        ...


class Holding:
    """The program of one call of the model, while its agent runs."""

    def __init__(self, program: HeldProgram) -> None:
        self.program = program
        self.context: RunContextWrapper[Any] | None = None


CURRENT: ContextVar[Holding] = ContextVar("codemode_openai_agents_program")


class Hooks(RunHooks[Any]):
    """Gives the model of the agent the context in which decisions are kept: models are given none."""

    async def on_llm_start(self, context: RunContextWrapper[Any], *_: Any, **__: Any) -> None:
        """Note the context of the turn that begins."""
        CURRENT.get().context = context


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
        continuation = _carried(items)
        if continuation is None:
            paused = await holding.program.begin()
        else:
            held = holding.context
            assert held is not None  # noqa: S101 - the hooks have seen the turn begin
            paused = await holding.program.go_on(continuation, _decisions(items, held), held)
        output = _last_word() if paused is None else _waiting(paused)
        return ModelResponse(output=cast("Any", output), usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Refuse: agents behind tools are streamed only when they are asked to."""
        raise NotImplementedError


@dataclass
class HoldingAgent(Agent[Any]):
    """The agent that stands for the paused programs of a model. It asks for calls of any tool that it has `learned`."""

    asked_for: dict[str, FunctionTool] = field(default_factory=dict[str, FunctionTool])

    @classmethod
    def new(cls) -> HoldingAgent:
        """Return one."""
        return cls(name=NAME, model=ProgramModel())

    def learn(self, tools: Iterable[FunctionTool]) -> None:
        """Let it ask for calls of these too."""
        self.asked_for.update({one.name: _asked_for(one) for one in tools if one.name not in self.asked_for})

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:  # noqa: ARG002 - the SDK's
        """Return what stands for the tools."""
        return list(self.asked_for.values())


def _asked_for(tool: FunctionTool) -> FunctionTool:
    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.params_json_schema,
        on_invoke_tool=_noted,
        strict_json_schema=False,
        needs_approval=True,
    )


async def _noted(_context: Any, _arguments: str) -> str:
    return ""  # the program makes the call, once it has read that it was approved


def _waiting(paused: Interrupt) -> list[Any]:
    text = json.dumps(paused.to_dict()["continuation"])
    carrier = ResponseReasoningItem(
        id=f"{_CARRIER}{paused.requests[0].interrupt_id}", summary=[], type="reasoning", encrypted_content=text
    )
    calls: list[ResponseFunctionToolCall] = []
    for one in paused.requests:
        call = call_of(one.tool_name, one.interrupt_id, one.input if one.input is not None else {})
        calls.append(call.model_copy(update={"id": new_mark()}))
    return [carrier, *calls]


def _last_word() -> list[Any]:
    said = ResponseOutputText(text="done", type="output_text", annotations=[])
    return [ResponseOutputMessage(id="msg", content=[said], role="assistant", status="completed", type="message")]


def _carried(items: list[dict[str, Any]]) -> Any:
    """Return the newest continuation in the agent's history; None before the first pause."""
    kept = [one for one in items if one.get("type") == "reasoning" and isinstance(one.get("encrypted_content"), str)]
    return json.loads(kept[-1]["encrypted_content"]) if kept else None


def _decisions(items: list[dict[str, Any]], held: RunContextWrapper[Any]) -> dict[str, Decision]:
    told = {one["call_id"]: one for one in items if one.get("type") == "function_call_output"}
    return {
        one["call_id"]: Decision(
            mark=str(one.get("id", "")),
            is_approved=held.is_tool_approved(one["name"], one["call_id"]) is True,
            said=str(told.get(one["call_id"], {}).get("output", "")),
        )
        for one in items
        if one.get("type") == "function_call"
    }
