"""An agent with CodeCall over two tools of a shop, and what may stand beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from codemode_langchain import CodeCallMiddleware
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, tool
from scripted_agent import Session, agent, asking, asks, results

INVOKE = {"directCalls": {"enabled": True}}
OWN = ["codecall_search", "codecall_describe", "codecall_execute"]


class Shop:
    """Tools, and what they did."""

    def __init__(self) -> None:
        self.done: list[Any] = []

        @tool
        def stock(product: str) -> int:
            """How many of a product there are."""
            self.done.append(product)
            return 7

        @tool
        def refund(order: str, cents: int = 500) -> str:
            """Give the money for an order back."""
            self.done.append((order, cents))
            return f"refunded {order}"

        self.stock, self.refund = stock, refund
        self.tools: list[BaseTool] = [stock, refund]


def marked(one: BaseTool, **codecall: Any) -> BaseTool:
    return one.model_copy(update={"metadata": {"codecall": codecall}})


def session(scripted: Any, tools: list[BaseTool], *middleware: Any, is_async: bool = False, **settings: Any) -> Session:
    return Session(agent((), tools, *middleware, model=scripted, **settings), is_async)


def answers(output: Any) -> list[Any]:
    """What the model was given, in the order of its calls; the text where it is no JSON."""
    found: list[Any] = []
    for message in results(output):
        try:
            found.append(json.loads(message.content))
        except ValueError:
            found.append(message.content)
    return found


def ask(
    tools: list[BaseTool], *requests: tuple[str, Mapping[str, Any]], own: Any = None, is_async: bool = False
) -> Any:
    given = session(asking(asks(*requests)), tools, own or CodeCallMiddleware(), is_async=is_async)
    return results(given.start())


class Watch(AgentMiddleware[Any, Any, Any]):
    """Sees calls of tools, and refuses those of some."""

    def __init__(self, name: str = "watch", refused: str = "") -> None:
        super().__init__()
        self._name = name
        self.seen: list[str] = []
        self._refused = refused

    @property
    def name(self) -> str:
        return self._name

    def _refusal(self, request: Any) -> ToolMessage | None:
        name = request.tool_call["name"]
        self.seen.append(name)
        if name != self._refused:
            return None
        return ToolMessage("house rule", name=name, tool_call_id=request.tool_call["id"], status="error")

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return self._refusal(request) or handler(request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return self._refusal(request) or await handler(request)
