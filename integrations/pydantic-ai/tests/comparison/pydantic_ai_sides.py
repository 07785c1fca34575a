"""What the scripts of the comparison share: an agent with one package or the other, and a scripted model.

Each script is one row: the first line of its docstring is the question, and ``answer(side)`` finds the answer by
running. ``python approval_edit.py pydantic-ai-harness`` prints it; `make comparison` runs all of them.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

sys.path.append(str(Path(__file__).parents[3] / "comparison"))
OURS, HARNESS = "codemode-pydantic-ai", "pydantic-ai-harness"
PATIENCE_SECONDS = 60


@dataclass
class Conversation:
    """An agent with one of the packages whose model asks for programs; what it was shown and told."""

    agent: Agent[Any, Any]
    shown: list[str] = field(default_factory=list[str])
    told: list[Any] = field(default_factory=list[Any])
    messages: list[ModelMessage] = field(default_factory=list[ModelMessage])
    output: Any = None

    async def say(self, **settings: Any) -> Conversation:
        """Run the agent, beyond what was said before, and remember what came of it."""
        given = {} if "deferred_tool_results" in settings else {"user_prompt": "go"}
        result = await self.agent.run(message_history=self.messages or None, **given, **settings)
        self.remember(result)
        return self

    def remember(self, result: Any) -> None:
        """Take over the messages of a run that has ended."""
        self.messages, self.output = result.all_messages(), result.output

    @property
    def said(self) -> str:
        """What the model was told last, of the last program."""
        return str(self.told[-1])


def clock() -> str:
    """Say what time it is: an agent without any tool is offered no programs."""
    return "noon"


class Side:
    """One of the two packages."""

    def __init__(self, name: str) -> None:
        self.name, self.is_ours = name, name == OURS

    def capability(self, **options: Any) -> Any:
        """Its capability; the harness names tools that declare no output in a warning."""
        if self.is_ours:
            from codemode_pydantic_ai import CodeMode

            return CodeMode(**options)
        from pydantic_ai_harness import CodeMode

        return CodeMode(**options)

    @contextmanager
    def fresh_pool(self) -> Generator[dict[str, Any]]:
        """Options under which its processes are new ones; the other package has no such option."""
        if not self.is_ours:
            yield {}
            return
        from codemode import PoolOptions, WorkerPool

        pool = WorkerPool(PoolOptions())
        try:
            yield {"pool": pool}
        finally:
            pool.close()

    def program(self, js: str, python: str) -> ToolCallPart:
        """The model's call of the one tool, with the program in the side's language."""
        return ToolCallPart("codeMode", {"js": js}) if self.is_ours else ToolCallPart("run_code", {"code": python})

    def agent(self, *said: Any, tools: Any = (), capability: Any = None, **settings: Any) -> Conversation:
        """An agent whose model says this, step by step, then "done" forever."""
        steps = list(said)
        shown: list[str] = []
        told: list[Any] = []

        def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            shown.append(_shown(messages, info))
            told.extend(_told(messages))
            step = steps.pop(0) if steps else "done"
            if callable(step):
                step = step(messages, info)
            return ModelResponse(parts=[TextPart(step) if isinstance(step, str) else step])

        async def stream(messages: list[ModelMessage], info: AgentInfo) -> Any:
            for part in respond(messages, info).parts:
                if isinstance(part, TextPart):
                    yield part.content
                elif isinstance(part, ToolCallPart):
                    yield {0: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}

        also = settings.pop("capabilities", ())
        output_type = settings.pop("output_type", [str, DeferredToolRequests])
        agent = Agent(
            FunctionModel(respond, stream_function=stream),
            tools=tools or [clock],
            output_type=output_type,
            capabilities=[capability or self.capability(), *also],
            **settings,
        )
        return Conversation(agent, shown, told)

    async def run(self, js: str, python: str, tools: Any = (), capability: Any = None, **settings: Any) -> Conversation:
        """Run one program in an agent."""
        return await self.agent(self.program(js, python), tools=tools, capability=capability, **settings).say()


def _shown(messages: list[ModelMessage], info: AgentInfo) -> str:
    parts = [f"{tool.name}\n{tool.description}\n{tool.parameters_json_schema}" for tool in info.function_tools]
    return "\n".join([*parts, str(info.instructions or "")])


def _told(messages: list[ModelMessage]) -> list[Any]:
    return [part.content for part in messages[-1].parts if part.part_kind in ("tool-return", "retry-prompt")]


def main(answer: Callable[[Side], Awaitable[str]]) -> None:
    """Print the answer of the side that the command names."""
    warnings.simplefilter("ignore")
    print(asyncio.run(answer(Side(sys.argv[1]))), flush=True)
    os._exit(0)  # what still runs, such as a thread of a program that nobody stops, would keep the process
