"""An agent whose model makes one tool call and ends, in two frameworks. Knows nothing of codemode or its peers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Any

# Takes the name and the arguments of the call, returns what the model was told of it.
OneCall = Callable[[str, dict[str, Any]], Awaitable[Any]]


def pydantic_ai_agent(tools: Sequence[Callable[..., Any]], capabilities: Sequence[Any] = ()) -> OneCall:
    """Return a pydantic-ai agent. Raises `ImportError` without the framework."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    async def one_call(name: str, arguments: dict[str, Any]) -> Any:
        told: list[Any] = []

        def respond(messages: list[Any], _: object) -> ModelResponse:
            last = messages[-1].parts[-1]
            if last.part_kind in ("tool-return", "retry-prompt"):
                told.append(last.content)
                return ModelResponse(parts=[TextPart("done")])
            return ModelResponse(parts=[ToolCallPart(name, arguments, tool_call_id="outer")])

        await agent.run("go", model=FunctionModel(respond))
        return told[-1]

    agent: Any = Agent(tools=tools, capabilities=capabilities)
    return one_call


def langchain_agent(tools: Sequence[Any], middleware: Sequence[Any] = ()) -> OneCall:
    """Return a LangChain agent. Raises `ImportError` without the framework."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

        def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
            said = AIMessage("done")
            if isinstance(messages[-1], HumanMessage):
                call = {**json.loads(str(messages[-1].content)), "id": "outer", "type": "tool_call"}
                said = AIMessage("", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=said)])

        async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
            return self._generate(messages)

    create: Any = import_module("langchain.agents").create_agent
    graph = create(Scripted(), tools, middleware=middleware)

    async def one_call(name: str, arguments: dict[str, Any]) -> Any:
        # What is asked is the very call to make, so that any number of runs may be under way.
        asked = HumanMessage(json.dumps({"name": name, "args": arguments}))
        output = await graph.ainvoke({"messages": [asked]})
        return next(one.content for one in output["messages"] if isinstance(one, ToolMessage))

    return one_call
