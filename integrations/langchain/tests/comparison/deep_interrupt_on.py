"""`interrupt_on` of `create_deep_agent` applies to the calls of programs"""

from __future__ import annotations

from langchain_deep import deep_agent
from langchain_desk import Desk
from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    desk = Desk()
    js = "return await tools.refund({ order: 'a' })"
    conversation = await deep_agent(side, js, [desk.refund], interrupt_on={"refund": True}).say()
    return yes(len(conversation.waiting) == 1 and not desk.done)


if __name__ == "__main__":
    main(answer)
