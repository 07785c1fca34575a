"""Times that a call runs that finished before the program paused

Ours by its pause, the harness, which has none, by ``HandleDeferredToolCalls``.
"""

from __future__ import annotations

from pydantic_ai import DeferredToolRequests, Tool
from pydantic_ai_desk import Desk
from pydantic_ai_sides import Side, main


async def answer(side: Side) -> str:
    desk, charged = Desk(), []

    def charge(order: str) -> str:
        charged.append(order)
        return f"charged {order}"

    js = "await tools.charge({ order: 'a' }); return await tools.refund({ order: 'a' })"
    python = "await charge(order='a')\nawait refund(order='a')"
    if side.is_ours:
        conversation = await side.run(js, python, [charge, Tool(desk.refund, requires_approval=True)])
        assert isinstance(conversation.output, DeferredToolRequests)
        results = conversation.output.build_results(approve_all=True)
        await conversation.say(deferred_tool_results=results)
    else:
        await desk.run(side, js, python, [charge])
    assert desk.refunded == [("a", 500)]
    return str(len(charged))


if __name__ == "__main__":
    main(answer)
