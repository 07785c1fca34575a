"""A call that needs approval ends the run with a request for that call, so that the process can end

The harness's README, "Sandbox restrictions": without a handler the call raises an error that becomes a retry.
"""

from __future__ import annotations

from pydantic_ai import DeferredToolRequests, Tool
from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    def refund(order: str) -> str:
        return f"refunded {order}"

    tools = [Tool(refund, requires_approval=True)]
    conversation = await side.run("return await tools.refund({ order: 'a' })", "await refund(order='a')", tools)
    output = conversation.output
    asked = output.approvals if isinstance(output, DeferredToolRequests) else []
    return yes([(one.tool_name, one.args) for one in asked] == [("refund", {"order": "a"})])


if __name__ == "__main__":
    main(answer)
