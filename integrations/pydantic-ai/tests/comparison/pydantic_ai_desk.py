"""A tool that needs approval, and pydantic-ai's own handler that answers while the run waits, which both take."""

from __future__ import annotations

from typing import Any

from pydantic_ai import DeferredToolRequests, DeferredToolResults, Tool, ToolApproved
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.messages import ToolCallPart
from pydantic_ai_sides import Conversation, Side


class Desk:
    """Notes what it is asked and what was refunded, and gives every call the same answer."""

    def __init__(self, decision: Any = None) -> None:
        self.decision = decision or ToolApproved()
        self.asked: list[ToolCallPart] = []
        self.refunded: list[tuple[str, int]] = []
        self.rounds = 0

    def refund(self, order: str, cents: int = 500) -> str:
        """Give the money for an order back."""
        self.refunded.append((order, cents))
        return f"refunded {cents} for {order}"

    async def decide(self, _ctx: Any, requests: DeferredToolRequests) -> DeferredToolResults:
        """Answer what is asked."""
        self.rounds += 1
        self.asked += requests.approvals
        return DeferredToolResults(approvals={one.tool_call_id: self.decision for one in requests.approvals})

    async def run(self, side: Side, js: str, python: str, tools: Any = ()) -> Conversation:
        """Run a program beside the handler."""
        handler = HandleDeferredToolCalls(handler=self.decide)
        return await side.run(js, python, [*tools, Tool(self.refund, requires_approval=True)], capabilities=[handler])
