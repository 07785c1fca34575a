"""A program's `try` does not catch a pause

Of a tool that calls ``interrupt()``, which both have; seen: what ``catch`` would do is done.
"""

from __future__ import annotations

from langchain_desk import Desk
from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    desk = Desk()
    js = "try { await tools.ask({ question: 'a?' }) } catch { await tools.refund({ order: 'a' }) } return 'end'"
    conversation = await side.run(js, [desk.ask, desk.refund])
    return yes(len(conversation.waiting) == 1 and not desk.done)


if __name__ == "__main__":
    main(answer)
