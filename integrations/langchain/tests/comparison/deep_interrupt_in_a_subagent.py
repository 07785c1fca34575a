"""An approval inside a sub-agent started by a program: times that the call before it runs

``interrupt_on`` of the sub-agent; the program has made a call of its own before it started the sub-agent.
"""

from __future__ import annotations

from langchain_core.messages import AIMessage
from langchain_deep import deep_agent, subagent, task
from langchain_desk import Desk
from langchain_sides import Side, main


async def answer(side: Side) -> str:
    desk = Desk()
    refund = {"name": "refund", "args": {"order": "a"}, "id": "refund", "type": "tool_call"}
    said = [AIMessage("", tool_calls=[refund]), *(AIMessage("refunded it") for _ in range(5))]
    payer = subagent(side, "payer", *said, tools=[desk.refund], interrupt_on={"refund": True})
    js = f"await tools.charge({{ order: 'a' }}); return {task(side, 'Refund a.', 'payer')}"
    conversation = await deep_agent(side, js, [desk.charge], subagents=[payer]).say()
    if not conversation.waiting:
        return "it does not wait"
    for _ in range(3):
        if conversation.waiting:
            await conversation.decide({"decisions": [{"type": "approve"}]})
    assert any(one.startswith("refunded") for one in desk.done), desk.done
    return str(sum(one.startswith("charged") for one in desk.done))


if __name__ == "__main__":
    main(answer)
