"""Approval rounds for three calls that a program starts together

Ours by its pause, the harness by ``HandleDeferredToolCalls``; a round is one request, with all that it lists.
"""

from __future__ import annotations

from pydantic_ai import DeferredToolRequests, Tool
from pydantic_ai_desk import Desk
from pydantic_ai_sides import Side, main


async def answer(side: Side) -> str:
    desk = Desk()
    js = "return await Promise.all(['a', 'b', 'c'].map((order) => tools.refund({ order })))"
    python = "import asyncio\nawait asyncio.gather(refund(order='a'), refund(order='b'), refund(order='c'))"
    if not side.is_ours:
        await desk.run(side, js, python)
        return str(desk.rounds)
    conversation = await side.run(js, python, [Tool(desk.refund, requires_approval=True)])
    rounds = 0
    while isinstance(requests := conversation.output, DeferredToolRequests):
        rounds += 1
        await conversation.say(deferred_tool_results=requests.build_results(approve_all=True))
    assert len(desk.refunded) == 3
    return str(rounds)


if __name__ == "__main__":
    main(answer)
