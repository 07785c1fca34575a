"""The graph that a running `langgraph dev` serves to tests: whatever a person says is a program."""

from __future__ import annotations

from typing import Any

from codemode_langchain import CodeModeMiddleware
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool


class Model(BaseChatModel):
    """Writes the program that it is told, and then the end."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        said = AIMessage("done")
        if messages[-1].type == "human":
            call = {"name": "codeMode", "args": {"js": messages[-1].content}, "id": "call_0", "type": "tool_call"}
            said = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
def pay(to: str, cents: int) -> str:
    """Pay."""
    return f"paid {cents} to {to}"


@tool
async def drop(name: str) -> str:
    """Drop."""
    return f"dropped {name}"


own = CodeModeMiddleware(approve={"pay": True, "drop": True}, interrupt_mode="batched")
graph = create_agent(Model(), [pay, drop], middleware=[own])
