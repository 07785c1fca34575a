"""A handler can approve while the run waits

Both with ``HandleDeferredToolCalls``.
"""

from __future__ import annotations

from pydantic_ai_desk import Desk
from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    desk = Desk()
    conversation = await desk.run(side, "return await tools.refund({ order: 'a' })", "await refund(order='a')")
    return yes(len(desk.asked) == 1 and conversation.told[-1] == "refunded 500 for a")


if __name__ == "__main__":
    main(answer)
