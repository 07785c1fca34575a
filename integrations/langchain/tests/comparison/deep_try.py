"""A program's `try` does not catch a pause in its sub-agent

Seen: what ``catch`` would do is done.
"""

from __future__ import annotations

from langchain_core.messages import AIMessage
from langchain_deep import deep_agent, subagent, task
from langchain_desk import Desk
from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    desk = Desk()
    refund = {"name": "refund", "args": {"order": "a"}, "id": "refund", "type": "tool_call"}
    payer = subagent(
        side, "payer", AIMessage("", tool_calls=[refund]), tools=[desk.refund], interrupt_on={"refund": True}
    )
    js = f"try {{ {task(side, 'Refund a.', 'payer')} }} catch {{ await tools.charge({{ order: 'a' }}) }} return 'end'"
    conversation = await deep_agent(side, js, [desk.charge], subagents=[payer]).say()
    return yes(len(conversation.waiting) == 1 and not desk.done)


if __name__ == "__main__":
    main(answer)
