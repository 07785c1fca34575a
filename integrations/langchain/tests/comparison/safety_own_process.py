"""Programs run in a process other than the agent's"""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_sides import Side, main
from script_steps import yes
from seen_processes import descendants


async def answer(side: Side) -> str:
    found: list[int] = []

    @tool
    def look() -> int:
        """Look at the processes."""
        found.extend(descendants())
        return len(found)

    await side.run("return await tools.look({})", [look])
    return yes(bool(found))


if __name__ == "__main__":
    main(answer)
