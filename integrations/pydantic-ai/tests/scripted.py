"""A model that says what it is told to, step by step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

Step = str | list[ToolCallPart] | Callable[[list[ModelMessage], AgentInfo], ModelResponse]


def program(js: str, call_id: str = "outer") -> list[ToolCallPart]:
    """One call of codeMode."""
    return [ToolCallPart("codeMode", {"js": js}, tool_call_id=call_id)]


def meta(name: str, call_id: str = "outer", **arguments: Any) -> list[ToolCallPart]:
    """One call of a meta-tool of CodeCall."""
    return [ToolCallPart(f"codecall_{name}", arguments, tool_call_id=call_id)]


def script(text: str, call_id: str = "outer", **arguments: Any) -> list[ToolCallPart]:
    """One call of CodeCall's execute."""
    return meta("execute", call_id, script=text, **arguments)


def execute(code: str, call_id: str = "outer", **more: Any) -> list[ToolCallPart]:
    """One call of exec."""
    return [ToolCallPart("exec", {"code": code, **more}, tool_call_id=call_id)]


def wait(call_id: str = "waiting", run_of: str | None = None) -> Step:
    """One call of wait, for the program that was left waiting last, or by the call of an id."""

    def step(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        run_id = run_id_of(messages, run_of)
        return ModelResponse(parts=[ToolCallPart("wait", {"runId": run_id}, tool_call_id=call_id)])

    return step


def run_id_of(messages: list[ModelMessage], call_id: str | None = None) -> str:
    """The id of the program that was left waiting last, or by the call of an id."""
    parts = [part for message in messages for part in message.parts if part.part_kind == "tool-return"]
    told = [part.content for part in parts if call_id in (None, part.tool_call_id) and isinstance(part.content, dict)]
    return [one["runId"] for one in told if "runId" in one][-1]


class Script:
    """The steps of a conversation; ``seen`` is what each request showed the model."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.seen: list[tuple[list[ModelMessage], AgentInfo]] = []
        self.model = FunctionModel(self._respond, stream_function=self._stream)

    def waits_to_the_end(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """A step that calls wait until the program that was left waiting last has ended."""
        calls = sum(part.part_kind == "tool-call" for message in messages for part in message.parts)
        self.steps.insert(0, self._after_wait)
        return wait(f"wait {calls}")(messages, info)  # type: ignore[operator]

    def _after_wait(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last: Any = messages[-1].parts[-1].content
        is_on = last["status"] == "waiting" or last.get("error", "").endswith("call wait again.")
        return self.waits_to_the_end(messages, info) if is_on else self._step(messages, info)

    def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.seen.append((list(messages), info))
        return self._step(messages, info)

    def _step(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = self.steps.pop(0)
        if isinstance(step, str):
            return ModelResponse(parts=[TextPart(step)])
        if callable(step):
            return step(messages, info)
        return ModelResponse(parts=list(step))

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for index, part in enumerate(self._respond(messages, info).parts):
            if isinstance(part, TextPart):
                yield part.content
            elif isinstance(part, ToolCallPart):
                yield {index: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}

    @property
    def results(self) -> list[Any]:
        """What the model was told of all calls, in order."""
        parts = (part for message in self.seen[-1][0] for part in message.parts)
        return [part.content for part in parts if part.part_kind == "tool-return"]

    @property
    def tool_names(self) -> list[str]:
        """The tools that the last request offered."""
        return [tool.name for tool in self.seen[-1][1].function_tools]

    def returned(self, call_id: str = "outer") -> Any:
        """What the model was last told of a call."""
        found = [
            part
            for message in self.seen[-1][0]
            for part in message.parts
            if getattr(part, "tool_call_id", None) == call_id and part.part_kind in ("tool-return", "retry-prompt")
        ]
        return found[-1].content
