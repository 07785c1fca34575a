"""Deep agents of the comparison: `create_deep_agent` with the middleware of one package or the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepagents import create_deep_agent
from langchain_core.messages import AIMessage
from langchain_sides import Conversation, Side
from langgraph.checkpoint.memory import InMemorySaver


def deep_agent(side: Side, js: str, tools: Sequence[Any] = (), **settings: Any) -> Conversation:
    """A deep agent whose model asks for one program; programs may call the tools, and write and read files."""
    model = side.model(side.program(js))
    if side.is_ours:
        middleware = side.middleware(tools)
    else:
        from langchain_quickjs import CodeInterpreterMiddleware

        names = [*(one.name for one in tools), "write_file", "read_file"]
        middleware = CodeInterpreterMiddleware(ptc=names, timeout=60.0)
    agent = create_deep_agent(model, [*tools], middleware=[middleware], checkpointer=InMemorySaver(), **settings)
    return Conversation(agent, model)


def task(side: Side, text: str, kind: str) -> str:
    """How a program starts a sub-agent with each."""
    if side.is_ours:
        return f"await tools.task({{ description: '{text}', subagent_type: '{kind}' }})"
    return f"await task({{ description: '{text}', subagentType: '{kind}' }})"


def subagent(side: Side, name: str, *said: AIMessage, tools: Sequence[Any] = (), **more: Any) -> Any:
    """A sub-agent whose model says this, and then "done"."""
    text = f"Does what a {name} does."
    return {
        "name": name,
        "description": text,
        "system_prompt": text,
        "tools": [*tools],
        "model": side.model(*said),
        **more,
    }
