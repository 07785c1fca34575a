"""What agents that are made for one request leave behind, whose capability is made once, whatever their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from census import left_by_each
from codemode_pydantic_ai import CodeCall, CodeMode, ExecWait
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.messages import ModelMessagesTypeAdapter
from scripted import Script, execute, program, script
from suite import full_only
from waiting import within

RUNS = 4
KEPT = (
    "codemode.continuations.guard._ClaimRow",  # claims of continuations, until these expire
    "codemode.continuations.guard.Claim",
    "codemode_pydantic_ai.conversation_state._ConversationEntry",  # the state of the last 1,024 conversations
    "codemode.execution.call_context.InMemoryStateBackend",
    "codemode.interrupts.interrupt.Interrupt",  # in the last 256 results of exec
    "codemode.interrupts.interrupt.PendingRequest",
)
PROGRAMS = {
    "completed": 'return await tools.stock({ product: "nut" });',
    "thrown": 'await tools.stock({ product: "nut" }); throw new Error("no");',
    "raised": "return await tools.breaks({});",
    "cancelled": "return await tools.endless({});",
}


class Stock(BaseModel):
    """How many there are."""

    count: int


class Desk:
    """What serves one request: an agent whose tools are its own methods, and so know the agent."""

    def __init__(self, step: Any, capability: Any) -> None:
        self.begun = asyncio.Event()
        self.agent = Agent(
            Script(step, "done").model,
            output_type=[str, DeferredToolRequests],
            tools=[self.stock, Tool(self.refund, requires_approval=True), self.breaks, self.endless],
            capabilities=[capability],
        )

    def stock(self, product: str) -> Stock:
        """How many of a product there are."""
        return Stock(count=len(product))

    def refund(self, order: str) -> str:
        """Give the money for an order back."""
        return order

    def breaks(self) -> str:
        """Break."""
        raise LookupError("broken")

    async def endless(self) -> None:
        """Never end."""
        self.begun.set()
        await asyncio.Event().wait()


def in_code_call(js: str) -> Any:
    return script(js.replace("tools.stock(", 'callTool("stock", ').replace("tools.refund(", 'callTool("refund", '))


def in_exec(js: str) -> Any:
    return execute(js.replace("tools.", "tools.call('host:core:").replace("({", "', {"))


async def one_run(desk: Desk, end: str) -> None:
    if end == "cancelled":
        running = asyncio.ensure_future(desk.agent.run("go"))
        await desk.begun.wait()
        running.cancel()
        await asyncio.wait([running])
        return
    if end == "streamed":
        async with desk.agent.run_stream("go") as streamed:
            assert await streamed.get_output() == "done"
        return
    result = await desk.agent.run("go")
    if end in ("paused", "resumed"):
        asked = result.output
        assert isinstance(asked, DeferredToolRequests)
        history = ModelMessagesTypeAdapter.validate_json(result.all_messages_json())
    if end == "resumed":
        answers = DeferredToolResults(approvals={one.tool_call_id: True for one in asked.approvals})
        result = await desk.agent.run(message_history=history, deferred_tool_results=answers)
    if end != "paused":
        assert result.output == "done"


@pytest.mark.parametrize(
    ("made", "said", "end"),
    [
        *((CodeMode, program, end) for end in ("streamed", "resumed")),
        (ExecWait, in_exec, "resumed"),
        *full_only(
            *((CodeMode, program, end) for end in PROGRAMS),
            (CodeMode, program, "paused"),
            *((CodeCall, in_code_call, end) for end in ("completed", "resumed")),
            (ExecWait, in_exec, "completed"),
        ),
    ],
)
def test_no_agent_leaves_anything_behind(
    caplog: pytest.LogCaptureFixture, made: Callable[[], Any], said: Callable[[str], Any], end: str
) -> None:
    caplog.set_level(logging.CRITICAL, "codemode.tools")  # what is logged is kept for the report, with its traceback
    shared = made()
    asks_for = 'return await tools.refund({ order: "a" });' if end in ("paused", "resumed") else PROGRAMS["completed"]
    step = said(PROGRAMS.get(end, asks_for))
    left = left_by_each(
        lambda: within(one_run(Desk(step, shared), end)), RUNS, "pydantic_ai", Desk.__module__, bounded=KEPT
    )
    assert left == {}
