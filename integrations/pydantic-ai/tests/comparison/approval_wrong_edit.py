"""An edited input that is invalid runs nothing

Both with ``HandleDeferredToolCalls``.
"""

from __future__ import annotations

from pydantic_ai import ToolApproved
from pydantic_ai_desk import Desk
from pydantic_ai_sides import Side, main
from script_steps import ends, yes


async def answer(side: Side) -> str:
    desk = Desk(ToolApproved(override_args={"order": "a", "cents": "many"}))
    await ends(desk.run(side, "return await tools.refund({ order: 'a' })", "await refund(order='a')"))
    return yes(bool(desk.asked) and not desk.refunded)


if __name__ == "__main__":
    main(answer)
