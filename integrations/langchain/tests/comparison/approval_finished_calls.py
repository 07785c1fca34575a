"""Times that a call runs that finished before the program paused

Of a tool that calls ``interrupt()``, which both have.
"""

from __future__ import annotations

from langchain_desk import Desk
from langchain_sides import Side, main


async def answer(side: Side) -> str:
    desk = Desk()
    js = "await tools.charge({ order: 'a' }); return await tools.ask({ question: 'a?' })"
    conversation = await side.run(js, [desk.charge, desk.ask])
    assert conversation.waiting
    assert (await conversation.decide("because")).result == "because"
    return str(len(desk.done))


if __name__ == "__main__":
    main(answer)
