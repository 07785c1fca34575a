"""The tool gets the input as edited by the approver

Both with ``HandleDeferredToolCalls``.
"""

from __future__ import annotations

from pydantic_ai import ToolApproved
from pydantic_ai_desk import Desk
from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    desk = Desk(ToolApproved(override_args={"order": "a", "cents": 300}))
    await desk.run(side, "return await tools.refund({ order: 'a' })", "await refund(order='a')")
    return yes(desk.refunded == [("a", 300)])


if __name__ == "__main__":
    main(answer)
