"""Maximum number of calls of one program, by default"""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_sides import Side, main
from script_steps import ends


async def answer(side: Side) -> str:
    made: list[int] = []

    @tool
    async def note(number: int) -> int:
        """Note a number."""
        made.append(number)
        return number

    js = "for (let number = 0; number < 2000; number += 1) await tools.note({ number })"
    await ends(side.run(js, [note]))
    return f"{len(made):,}"


if __name__ == "__main__":
    main(answer)
