"""The next program can read that result in full

Of the harness the first program has to keep it in a variable.
"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes


def export() -> str:
    return "x" * 1_000_000


async def answer(side: Side) -> str:
    first = side.program("return await tools.export({})", "whole = await export()\nwhole")
    second = side.program("return (await state.get('result:1')).length", "len(whole)")
    return yes((await side.agent(first, second, tools=[export]).say()).told[-1] == 1_000_000)


if __name__ == "__main__":
    main(answer)
