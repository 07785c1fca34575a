"""An agent with CodeCall over two tools of a desk, one of which needs approval."""

from __future__ import annotations

import asyncio
from typing import Any

from codemode_pydantic_ai import CodeCall
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from scripted import Script, meta, script

WAIT_SECONDS = 60.0
REFUNDS = """
const stock = await callTool("stock", { product: "nut" });
const refunds = await Promise.allSettled(["a", "b"].map((order) => callTool("refund", { order })));
return [stock, ...refunds.map((one) => one.value ?? [one.reason.code, one.reason.message])];
"""
ONE_REFUND = script("return callTool('refund', { order: 'a' })")
DIRECT_REFUND = meta("invoke", tool="refund", input={"order": "a"})


class Desk:
    """Two tools, one of which needs approval; ``did`` is what has happened."""

    def __init__(self) -> None:
        self.did: list[Any] = []

    def refund(self, order: str, cents: int = 500) -> str:
        """Give money back."""
        self.did.append(("refund", order, cents))
        return f"refunded {order}: {cents}"

    def stock(self, product: str) -> int:
        """How many there are."""
        self.did.append(("stock", product))
        return 7

    def tools(self) -> list[Tool[Any]]:
        return [Tool(self.stock), Tool(self.refund, requires_approval=True)]

    def agent(self, steps: Script, *more: Any, **options: Any) -> Agent[Any, Any]:
        capability = CodeCall(**{"direct_calls": {"enabled": True}, **options})
        return Agent(
            steps.model,
            tools=self.tools(),
            output_type=[str, DeferredToolRequests],
            capabilities=[capability, *more],
        )


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


def stored(messages: list[ModelMessage]) -> list[ModelMessage]:
    """The messages after a stay in a database."""
    return ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))


def goes_on(agent: Agent[Any, Any], paused: Any, approvals: dict[str, Any], **settings: Any) -> Any:
    results = DeferredToolResults(approvals=approvals)
    history = stored(paused.all_messages())
    return within(agent.run(message_history=history, deferred_tool_results=results, **settings))


def waiting(paused: Any) -> list[str]:
    assert isinstance(paused.output, DeferredToolRequests), paused.output
    return [call.tool_call_id for call in paused.output.approvals]
