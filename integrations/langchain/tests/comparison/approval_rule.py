"""The package has its own rule for which calls of programs need approval

Ours ``approve={"refund": True}``. langchain-quickjs documents that such calls are not
reviewed; its ``ptc`` is the list of what runs unasked.
"""

from __future__ import annotations

from langchain_desk import Desk
from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    desk = Desk()
    options = {"approve": {"refund": True}} if side.is_ours else {}
    conversation = await side.run("return await tools.refund({ order: 'a' })", [desk.refund], options=options)
    return yes(len(conversation.waiting) == 1 and not desk.done)


if __name__ == "__main__":
    main(answer)
