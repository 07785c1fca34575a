"""What agents that are made for one request leave behind, whose middleware is made once, whatever their end."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from census import left_by_each
from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, ExecWaitMiddleware, surfaces
from exec_wait_agent import runs
from langchain.agents.middleware import ToolCallLimitMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command, interrupt
from scripted_agent import CONFIG, START, agent, asking, calls, executes
from suite import full_only
from waiting import within

RUNS = 4
KEPT = (
    "codemode.continuations.guard._ClaimRow",  # claims of continuations, until these expire
    "codemode.continuations.guard.Claim",
)
PROGRAMS = {
    "completed": 'return await tools.stock({ product: "nut" });',
    "blocking": 'return await tools.stock({ product: "nut" });',
    "thrown": 'await tools.stock({ product: "nut" }); throw new Error("no");',
    "raised": "return await tools.breaks({});",
    "cancelled": "return await tools.endless({});",
}


class Desk:
    """What serves one request: an agent whose tools are its own methods, and so know the agent."""

    def __init__(self, message: AIMessage, middleware: list[Any]) -> None:
        self.begun = asyncio.Event()
        tools: list[BaseTool] = [StructuredTool.from_function(one) for one in (self.stock, self.refund, self.breaks)]
        tools.append(StructuredTool.from_function(coroutine=self.endless))
        self.agent = agent((), tools, *middleware, model=asking(message))

    def stock(self, product: str) -> str:
        """How many of a product there are."""
        return product

    def refund(self, order: str) -> str:
        """Give the money for an order back."""
        return f"{order} {interrupt(order)}"

    def breaks(self) -> str:
        """Break."""
        raise LookupError("broken")

    async def endless(self) -> None:
        """Never end."""
        self.begun.set()
        await asyncio.Event().wait()


def in_code_call(js: str) -> AIMessage:
    return executes(re.sub(r"tools\.(\w+)\(", r'callTool("\1", ', js))


def in_exec(js: str) -> AIMessage:
    return runs(re.sub(r"tools\.(\w+)\(", r'tools.call("host:core:\1", ', js))


async def one_run(desk: Desk, end: str) -> None:
    if end == "cancelled":
        running = asyncio.ensure_future(desk.agent.ainvoke(START, CONFIG))
        await desk.begun.wait()
        running.cancel()
        await asyncio.wait([running])
        return
    if end == "blocking":
        output = await asyncio.to_thread(desk.agent.invoke, START, CONFIG)
    else:
        output = await desk.agent.ainvoke(START, CONFIG)
    if end in ("paused", "resumed"):
        assert output["__interrupt__"]
    if end == "resumed":
        output = await desk.agent.ainvoke(Command(resume={output["__interrupt__"][0].id: "yes"}), CONFIG)
    if end != "paused":
        assert output["messages"][-1].content == "done"


@pytest.mark.parametrize(
    ("made", "said", "end"),
    [
        (CodeModeMiddleware, calls, "resumed"),
        (ExecWaitMiddleware, in_exec, "resumed"),
        *full_only(*((CodeModeMiddleware, calls, end) for end in [*PROGRAMS, "paused"])),
        *full_only(
            *((CodeCallMiddleware, in_code_call, end) for end in ("completed", "resumed")),
            (ExecWaitMiddleware, in_exec, "completed"),
        ),
    ],
)
def test_no_agent_leaves_anything_behind(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    made: Callable[[], Any],
    said: Callable[[str], AIMessage],
    end: str,
) -> None:
    caplog.set_level(logging.CRITICAL, "codemode.tools")  # what is logged is kept for the report, with its traceback
    monkeypatch.setattr(surfaces, "_MAX_SURFACES", 1)  # which are kept on purpose, with the tools that they are over
    shared = [made(), *([] if made is ExecWaitMiddleware else [ToolCallLimitMiddleware(run_limit=50)])]
    program = PROGRAMS.get(end, 'return await tools.refund({ order: "a" });')
    left = left_by_each(
        lambda: within(one_run(Desk(said(program), shared), end)), RUNS, "lang", Desk.__module__, bounded=KEPT
    )
    assert left == {}


@pytest.mark.parametrize(("most_tools", "kept"), [(8, 4), (5, 2), (1, 1)])
def test_surfaces_are_kept_up_to_a_number_of_tools(monkeypatch: pytest.MonkeyPatch, most_tools: int, kept: int) -> None:
    monkeypatch.setattr(surfaces, "_MAX_SURFACES", 4)
    monkeypatch.setattr(surfaces, "_MAX_TOOLS", most_tools)
    known = surfaces.SurfaceCache(lambda tools: SimpleNamespace(all_tools=tools))
    keys = [(number,) for number in range(6)]
    for key in keys:
        known.get_or_create(key, ["one", "two"])
    assert [key for key in keys if key in known] == keys[-kept:]
