"""The approver sees the input as the tool gets it, with defaults

Ours by ``approve``; theirs by the ``HumanInTheLoopMiddleware`` of LangChain, which sees the program alone.
"""

from __future__ import annotations

from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_desk import Desk
from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    desk = Desk()
    options = {"approve": {"refund": True}} if side.is_ours else {}
    after = [] if side.is_ours else [HumanInTheLoopMiddleware({"eval": True})]
    js = "return await tools.refund({ order: 'a' })"
    conversation = await side.run(js, [desk.refund], options=options, after=after)
    assert conversation.waiting
    shown = conversation.waiting[0].value["action_requests"][0]
    return yes(shown["args"] == {"order": "a", "cents": 500})


if __name__ == "__main__":
    main(answer)
