"""An integer beyond 2^53 passes through a program unchanged"""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_sides import Side, main
from script_steps import yes

NUMBER = 2**60 + 1


async def answer(side: Side) -> str:
    got: list[int] = []

    @tool
    def newest() -> int:
        """Give the newest number."""
        return NUMBER

    @tool
    def close(number: int) -> int:
        """Close a number."""
        got.append(number)
        return number

    conversation = await side.run("return await tools.close({ number: await tools.newest({}) })", [newest, close])
    return yes(got == [NUMBER] and str(NUMBER) in conversation.said)


if __name__ == "__main__":
    main(answer)
