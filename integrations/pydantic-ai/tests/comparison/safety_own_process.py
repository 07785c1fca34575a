"""Programs run in a process other than the agent's"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes
from seen_processes import descendants


async def answer(side: Side) -> str:
    found: list[int] = []

    def look() -> int:
        found.extend(descendants())
        return len(found)

    await side.run("return await tools.look({})", "await look()", [look])
    return yes(bool(found))


if __name__ == "__main__":
    main(answer)
