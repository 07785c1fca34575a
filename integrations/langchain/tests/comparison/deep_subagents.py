"""A program can start several sub-agents concurrently"""

from __future__ import annotations

from langchain_core.messages import AIMessage
from langchain_deep import deep_agent, subagent, task
from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    one, two = (
        task(side, "Read a.", "reader").removeprefix("await "),
        task(side, "Read b.", "reader").removeprefix("await "),
    )
    reader = subagent(side, "reader", AIMessage("read"), AIMessage("read"))
    conversation = await deep_agent(
        side, f"return (await Promise.all([{one}, {two}])).join()", subagents=[reader]
    ).say()
    return yes(conversation.result == "read,read")


if __name__ == "__main__":
    main(answer)
