"""Processes in addition to the agent's while one program runs"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from seen_processes import descendants


async def answer(side: Side) -> str:
    before, found = set(descendants()), list[int]()

    def look() -> int:
        found.extend(set(descendants()) - before)
        return len(found)

    with side.fresh_pool() as options:
        await side.run("return await tools.look({})", "await look()", [look], side.capability(**options))
    return str(len(found))


if __name__ == "__main__":
    main(answer)
