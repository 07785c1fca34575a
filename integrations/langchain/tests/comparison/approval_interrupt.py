"""A tool that calls `interrupt()` pauses the graph, and its answer reaches the program"""

from __future__ import annotations

from langchain_desk import Desk
from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    conversation = await side.run("return await tools.ask({ question: 'a?' })", [Desk().ask])
    if [one.value for one in conversation.waiting] != ["a?"]:
        return "no"
    return yes((await conversation.decide("because")).result == "because")


if __name__ == "__main__":
    main(answer)
