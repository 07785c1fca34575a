"""A program can store a value for the next turn of the thread, read by another agent over the same checkpoints

Another agent stands for another process.
"""

from __future__ import annotations

from langchain_desk import keeping_programs
from langchain_sides import Side, main
from langgraph.checkpoint.memory import InMemorySaver
from script_steps import yes


async def answer(side: Side) -> str:
    first, second = keeping_programs(side)
    saver = InMemorySaver()
    await side.agent(first, checkpointer=saver).say()
    return yes((await side.agent(second, checkpointer=saver).say()).result == "3")


if __name__ == "__main__":
    main(answer)
