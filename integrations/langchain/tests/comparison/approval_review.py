"""`HumanInTheLoopMiddleware({"refund": True})` reviews the call of a program"""

from __future__ import annotations

from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_desk import Desk
from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    desk = Desk()
    review = HumanInTheLoopMiddleware({"refund": True})
    conversation = await side.run("return await tools.refund({ order: 'a' })", [desk.refund], after=[review])
    return yes(len(conversation.waiting) == 1 and not desk.done)


if __name__ == "__main__":
    main(answer)
