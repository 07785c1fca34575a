"""A model of the SDK that says what a test tells it to, and an agent around it. No network."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCustomToolCall,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

CUSTOM = "custom:"
QUIET = RunConfig(tracing_disabled=True)


class Script(Model):
    """Each turn is a text, or ``(name, arguments)`` pairs of calls, with ids ``<ids>-<n>``; "custom:" makes raw text.

    With ``ends`` it says what that makes of its input once that holds an answer.
    """

    def __init__(self, *turns: Any, ids: str = "outer", ends: Callable[[Any], str] | None = None) -> None:
        self._ends = ends
        self._ids = ids
        self.turns = list(turns)
        self.inputs: list[Any] = []
        self.shown: list[dict[str, str]] = []
        self._calls = 0

    async def get_response(self, *given: Any, **named: Any) -> ModelResponse:
        values = {
            **dict(zip(("system_instructions", "input", "model_settings", "tools"), given, strict=False)),
            **named,
        }
        self.inputs.append(values["input"])
        tools = values["tools"]
        self.shown.append({one.name: getattr(one, "description", "") for one in tools})
        return ModelResponse(output=self._said(self._next(values["input"])), usage=Usage(requests=1), response_id=None)

    async def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        said = (await self.get_response(*args, **named)).output
        response = Response(
            id="resp",
            created_at=0,
            model="scripted",
            object="response",
            output=said,
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")

    def _next(self, said: Any) -> Any:
        has_answer = isinstance(said, list) and any(one.get("type") == "function_call_output" for one in said)
        return self._ends(said) if self._ends is not None and has_answer else self.turns.pop(0)

    def _said(self, turn: Any) -> list[Any]:
        if isinstance(turn, str):
            part = ResponseOutputText(text=turn, type="output_text", annotations=[])
            return [ResponseOutputMessage(id="m", content=[part], role="assistant", status="completed", type="message")]
        return [self._call(name, given) for name, given in turn]

    def _call(self, name: str, given: Any) -> ResponseFunctionToolCall | ResponseCustomToolCall:
        self._calls += 1
        if name.startswith(CUSTOM):
            call_id, name = f"{self._ids}-{self._calls}", name.removeprefix(CUSTOM)
            return ResponseCustomToolCall(call_id=call_id, name=name, input=given, type="custom_tool_call")
        text = given if isinstance(given, str) else json.dumps(given)
        call_id = f"{self._ids}-{self._calls}"
        return ResponseFunctionToolCall(call_id=call_id, name=name, arguments=text, type="function_call")


def program(js: str) -> list[tuple[str, Any]]:
    return [("codeMode", {"js": js})]


def agent(model: Model, *tools: Any, **settings: Any) -> Agent[Any]:
    return Agent(name="desk", model=model, tools=list(tools), **settings)


def outputs(result: Any) -> list[Any]:
    """The outputs of tools in what a run has added, as items of the SDK."""
    return [one for one in result.new_items if one.type == "tool_call_output_item"]
