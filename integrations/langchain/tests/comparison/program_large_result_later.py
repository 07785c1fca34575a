"""The next program can read that result in full

Of langchain-quickjs the first program has to keep it in a variable.
"""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_sides import Side, main
from script_steps import yes


@tool
def export() -> str:
    """Export."""
    return "x" * 1_000_000


async def answer(side: Side) -> str:
    if side.is_ours:
        first, second = "return await tools.export({})", "return (await state.get('result:1')).length"
    else:
        first, second = "const whole = await tools.export({}); whole", "whole.length"
    said = [side.program(first, "one", is_script=True), side.program(second, "two", is_script=True)]
    return yes((await side.agent(*said, tools=[export]).say()).result == "1000000")


if __name__ == "__main__":
    main(answer)
