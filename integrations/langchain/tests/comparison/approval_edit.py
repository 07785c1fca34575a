"""The tool gets the input as edited by the approver

Ours by ``approve``; theirs by a ``HumanInTheLoopMiddleware`` over the tool.
"""

from __future__ import annotations

from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_desk import Desk
from langchain_sides import Side, main
from script_steps import yes

EDIT = {"type": "edit", "edited_action": {"name": "refund", "args": {"order": "a", "cents": 300}}}


async def answer(side: Side) -> str:
    desk = Desk()
    options = {"approve": {"refund": True}} if side.is_ours else {}
    after = [] if side.is_ours else [HumanInTheLoopMiddleware({"refund": True})]
    js = "return await tools.refund({ order: 'a' })"
    conversation = await side.run(js, [desk.refund], options=options, after=after)
    if conversation.waiting:
        await conversation.decide(EDIT)
    return yes(desk.done == ["refunded 300 for a"])


if __name__ == "__main__":
    main(answer)
