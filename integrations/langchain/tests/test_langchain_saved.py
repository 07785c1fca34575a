"""Saved programs in an agent: called, asked about, and saved once a person has approved it."""

from __future__ import annotations

import asyncio
from typing import Any

from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, ExecWaitMiddleware
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from scripted_agent import CONFIG, START, asking, asks, calls, executes

from codemode import ProgramLibrary
from codemode.stores import MemoryInterruptStore

SAVE = (
    'return await saved.$save({ name: "all", description: "All.",'
    ' program: "return tools.stock({ product: input.p })" })'
)


@tool
def stock(product: str) -> int:
    """How many of a product there are."""
    return 7


@tool
def refund(order: str) -> str:
    """Give the money for an order back."""
    return f"refunded {order}"


def library_with(**programs: str) -> ProgramLibrary:
    library = ProgramLibrary(MemoryInterruptStore(), model_saves=True)
    for name, text in programs.items():
        asyncio.run(library.save(name, text))
    return library


def agent_with(middleware: Any, *messages: Any) -> tuple[Any, Any]:
    model = asking(*messages)
    return create_agent(model, [stock, refund], middleware=[middleware], checkpointer=InMemorySaver()), model


def contents(state: Any) -> list[Any]:
    return [one.content for one in state["messages"] if isinstance(one, ToolMessage)]


def test_a_saved_program_asks_for_its_calls():
    text = "return [await tools.stock({ product: 'nut' }), await tools.refund({ order: 'a' })]"
    middleware = CodeModeMiddleware(approve={"refund": True}, library=library_with(back=text))
    made, _ = agent_with(middleware, calls("return await saved.back()"))
    paused = made.invoke(START, CONFIG)
    assert paused["__interrupt__"][0].value["action_requests"][0]["name"] == "refund"
    ended = made.invoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)
    assert contents(ended) == ['[7, "refunded a"]']


def test_a_program_is_saved_when_a_person_approves_it():
    middleware = CodeModeMiddleware(library=library_with())
    made, model = agent_with(middleware, calls(SAVE), calls("return await saved.all({ p: 'nut' })"))
    paused = made.invoke(START, CONFIG)
    asked = paused["__interrupt__"][0].value["action_requests"][0]
    assert (asked["name"], asked["args"]["tools"]) == ("saved.$save", ["stock"])
    ended = made.invoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)
    assert contents(ended) == ['{"name": "all", "version": 1}', "7"]
    assert "all(input?: unknown)" in model.shown[-1][0].description


def test_scripts_and_pairs_call_saved_programs():
    library = library_with(stock="return callTool('stock', { product: 'nut' })")
    made, _ = agent_with(CodeCallMiddleware(library=library), executes("return await saved.stock()"))
    assert '"result": 7' in contents(made.invoke(START, CONFIG))[0]
    library = library_with(stock="return tools.stock({ product: 'nut' })")
    made, _ = agent_with(ExecWaitMiddleware(library=library), asks(("exec", {"code": "return await saved.stock()"})))
    assert '"value": 7' in contents(made.invoke(START, CONFIG))[0]
