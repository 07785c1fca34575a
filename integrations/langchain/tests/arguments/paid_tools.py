"""A tool that is paid in euros, by schemas that change them, called in an agent and in a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from codemode_langchain import CodeModeMiddleware, create_code_mode_tool
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    field_validator,
    model_validator,
)
from scripted_agent import Session, agent, calls


def cents(euros: int) -> int:
    return euros * 100


class ByField(BaseModel):
    euros: int

    @field_validator("euros")
    @classmethod
    def _cents(cls, euros: int) -> int:
        return cents(euros)


class ByModel(BaseModel):
    euros: int

    @model_validator(mode="after")
    def _cents(self) -> ByModel:
        self.euros = cents(self.euros)
        return self


class ByText(BaseModel):
    """Takes a text that it does not take again."""

    euros: Annotated[int, BeforeValidator(lambda text: int(text.removesuffix(" EUR")) * 100)]


class ByAnnotation(BaseModel):
    euros: Annotated[int, AfterValidator(cents)]


class Ledger:
    """Remembers what its tools were called with."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []

    def tool(self, schema: Any, **settings: Any) -> BaseTool:
        def pay(**arguments: Any) -> str:
            self.got.append(arguments)
            return "paid"

        return StructuredTool.from_function(pay, name="pay", description="Pay.", args_schema=schema, **settings)


def in_an_agent(js: str, tools: list[BaseTool], *after: Any, is_async: bool, approve: Any, **settings: Any) -> Session:
    return Session(agent([js], tools, CodeModeMiddleware(approve=approve), *after, **settings), is_async)


def in_a_graph(js: str, tools: list[BaseTool], *, is_async: bool, approve: Any) -> Session:
    graph = StateGraph(MessagesState)
    graph.add_node("ask", lambda state: {"messages": [calls(js)]})
    graph.add_node("tools", ToolNode([create_code_mode_tool(tools, approve=approve)]))
    graph.set_entry_point("ask")
    graph.add_edge("ask", "tools")
    return Session(graph.compile(checkpointer=InMemorySaver()), is_async)


def asked(rule: list[Any]) -> Callable[[dict[str, Any]], bool]:
    """A rule that notes what it sees, tries to change it, and asks a person."""

    def when(arguments: dict[str, Any]) -> bool:
        rule.append({**arguments})
        arguments.clear()
        return True

    return when
