"""One gated tool in an agent, in each of the ways in which a tool can be gated."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import json
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

from codemode_pydantic_ai import CodeMode
from pydantic import (
    AfterValidator,
    BaseModel,
    SecretStr,
)
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
)
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ToolCallPart
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, program

WAIT_SECONDS = 60.0


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


def plain(value: Any) -> Any:
    """What a tool was given, told in another way than the plugin's own."""
    if isinstance(value, BaseModel):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.get_secret_value() if isinstance(value, SecretStr) else value


class Gate:
    """One gated tool in an agent, in one of the ways in which a tool can be gated; ``ran`` is what it was given."""

    def __init__(self, kind: str, function: Callable[..., Any], given: dict[str, Any]) -> None:
        self.ran: list[dict[str, Any]] = []
        self.ruled: list[dict[str, Any]] = []
        self.script = Script(program(f"return await tools.gated({json.dumps(given)})"), "done")
        self.agent = self._agent(kind, function)

    def _agent(self, kind: str, function: Callable[..., Any]) -> Agent[Any, Any]:
        made: Any
        if kind == "requires_approval":
            made = {"tools": [Tool(function, name="gated", requires_approval=True)]}
        elif kind == "raises":
            made = {"tools": [Tool(asking(function), name="gated")]}
        elif kind == "plain":
            made = {"tools": [Tool(function, name="gated")]}
        elif kind == "validator_raises":
            made = {"tools": [Tool(function, name="gated", args_validator=asks)]}
        else:
            toolset = FunctionToolset([Tool(function, name="gated")]).approval_required(self._rule)
            made = {"toolsets": [toolset]}
        return Agent(self.script.model, output_type=[str, DeferredToolRequests], capabilities=[CodeMode()], **made)

    def _rule(self, ctx: Any, definition: Any, arguments: dict[str, Any]) -> bool:
        self.ruled.append(plain(arguments))
        return True

    def paused(self) -> tuple[ToolCallPart, list[ModelMessage]]:
        result = within(self.agent.run("go"))
        assert isinstance(result.output, DeferredToolRequests), (result.output, self.script.returned())
        (call,) = result.output.approvals
        return call, ModelMessagesTypeAdapter.validate_json(result.all_messages_json())

    def answered(self, call: ToolCallPart, history: list[ModelMessage], decision: Any = True) -> Any:
        results = DeferredToolResults(approvals={call.tool_call_id: decision})
        return within(self.agent.run(message_history=history, deferred_tool_results=results))


def asking(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same tool, which itself asks for approval after it has spoilt what it was given."""

    @functools.wraps(function)
    def asks_first(ctx: RunContext[Any], **given: Any) -> Any:
        if ctx.tool_call_approved:
            return function(**given)
        spoil(given)
        raise ApprovalRequired

    wrapped: Any = asks_first
    hints = get_type_hints(function, include_extras=True)
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=RunContext[Any])
    given = inspect.signature(function).parameters.values()
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[one.name]) for one in given]
    wrapped.__signature__ = inspect.Signature([context, *parameters])
    wrapped.__annotations__ = {"ctx": RunContext[Any], **hints}
    del wrapped.__wrapped__
    return wrapped


def spoil(value: Any) -> None:
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            spoil(getattr(value, name))
            value.__dict__[name] = "spoilt"
    elif isinstance(value, dict):
        for one in value.values():
            spoil(one)
        value.clear()
    elif isinstance(value, list):
        value.clear()


def asks(ctx: RunContext[Any], **given: Any) -> None:
    if not ctx.tool_call_approved:
        raise ApprovalRequired


KINDS = ["requires_approval", "toolset", "raises", "validator_raises"]


def euros_to_cents(value: int) -> int:
    return value * 100


Cents = Annotated[int, AfterValidator(euros_to_cents)]
clock = itertools.count(1000)
