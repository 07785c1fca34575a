"""The message of `ToolException` reaches the program as an error that it can catch"""

from __future__ import annotations

from langchain_core.tools import ToolException, tool
from langchain_sides import Side, main
from script_steps import yes


@tool
def ship(order: str) -> str:
    """Ship."""
    raise ToolException("the order is closed")


async def answer(side: Side) -> str:
    js = "try { return await tools.ship({ order: 'a' }) } catch (error) { return 'caught ' + error.message }"
    result = (await side.run(js, [ship])).result
    return yes("caught" in result and "the order is closed" in result)


if __name__ == "__main__":
    main(answer)
