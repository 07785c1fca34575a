"""The approver sees the input as the tool gets it, with defaults

Both with ``HandleDeferredToolCalls``.
"""

from __future__ import annotations

from pydantic_ai_desk import Desk
from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    desk = Desk()
    await desk.run(side, "return await tools.refund({ order: 'a' })", "await refund(order='a')")
    return yes([one.args_as_dict() for one in desk.asked] == [{"order": "a", "cents": 500}])


if __name__ == "__main__":
    main(answer)
