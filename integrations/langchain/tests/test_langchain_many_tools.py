"""A surface over many tools takes its time to make: it is made in a thread, while the event loop serves others."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from codemode_langchain import CodeModeMiddleware, ExecWaitMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from scripted_agent import START, agent, asking, calls, content, model

PATIENCE_SECONDS = 60


class Read(StructuredTool):
    """Notes in which threads its schema is read, and calls ``reading`` there."""

    threads: set[int] = set()  # noqa: RUF012 - a pydantic field, copied for each tool
    reading: Any = None

    @property
    def tool_call_schema(self) -> Any:
        self.threads.add(threading.get_ident())
        if self.reading is not None:
            self.reading()
        return super().tool_call_schema


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def read() -> Read:
    return Read.from_function(add)  # type: ignore[return-value]


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


@pytest.mark.parametrize("middleware", [CodeModeMiddleware, ExecWaitMiddleware])
def test_tools_are_read_in_a_thread_before_the_model_is_asked(middleware: type[Any]):
    asyncio.run(_reads_in_a_thread(middleware))


async def _reads_in_a_thread(middleware: type[Any]) -> None:
    tool = read()
    graph = agent((), [tool], middleware(), model=asking())
    tool.threads.clear()  # building an agent is nobody's event loop
    await graph.ainvoke(START, config("one"))
    assert threading.get_ident() not in tool.threads


def test_tools_are_read_in_a_thread_where_a_program_goes_on_in_another_agent():
    asyncio.run(_goes_on_in_another_agent())


async def _goes_on_in_another_agent() -> None:
    saver, program = InMemorySaver(), "return await tools.add({ a: 1 })"
    first = agent([program], [read()], CodeModeMiddleware(approve={"add": True}), checkpointer=saver)
    (waiting,) = (await first.ainvoke(START, config("one")))["__interrupt__"]
    tool = read()
    scripted = model(program, said=1)
    then = agent([], [tool], CodeModeMiddleware(approve={"add": True}), checkpointer=saver, model=scripted)
    tool.threads.clear()
    output = await then.ainvoke(Command(resume={waiting.id: {"type": "approve"}}), config("one"))
    assert content(output) == "3"
    assert tool.threads
    assert threading.get_ident() not in tool.threads


def test_an_agent_whose_tools_are_known_runs_while_those_of_another_are_read():
    asyncio.run(_runs_while_others_are_read())


async def _runs_while_others_are_read() -> None:
    middleware, begun, went_on = CodeModeMiddleware(), threading.Event(), threading.Event()
    was_free: list[bool] = []

    def reading() -> None:
        begun.set()
        was_free.append(went_on.wait(PATIENCE_SECONDS))

    known = agent((), [read()], middleware, model=asking(calls("return 1"), AIMessage("done"), calls("return 2")))
    await known.ainvoke(START, config("one"))
    tool = read()
    unknown = agent((), [tool], middleware, model=asking(calls("return await tools.add({ a: 1 })")))
    tool.reading = reading
    run = asyncio.create_task(unknown.ainvoke(START, config("two")))
    await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
    assert content(await known.ainvoke(START, config("three"))) == "2"
    went_on.set()
    assert content(await run) == "3"
    assert all(was_free)
