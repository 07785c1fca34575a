"""Processes in addition to the agent's while one program runs"""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_sides import Side, main
from seen_processes import descendants


async def answer(side: Side) -> str:
    before, found = set(descendants()), list[int]()

    @tool
    def look() -> int:
        """Look at the processes."""
        found.extend(set(descendants()) - before)
        return len(found)

    with side.fresh_pool() as options:
        await side.run("return await tools.look({})", [look], options=options)
    return str(len(found))


if __name__ == "__main__":
    main(answer)
