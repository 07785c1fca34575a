"""Secrets in the agent's environment are in that of the process that runs programs"""

from __future__ import annotations

import os

from langchain_core.tools import tool
from langchain_sides import Side, main
from script_steps import yes
from seen_processes import environments

SECRET = "hunter2-of-the-comparison"


async def answer(side: Side) -> str:
    # Before any process of either is started; one that has been started would not have it.
    os.environ["COMPARISON_API_KEY"] = SECRET
    found: list[str] = []

    @tool
    def look() -> int:
        """Look at the processes."""
        found.extend(environments())
        return len(found)

    with side.fresh_pool() as options:
        await side.run("return await tools.look({})", [look], options=options)
    if not found:  # programs run in the agent's process itself
        found.append(os.environ["COMPARISON_API_KEY"])
    return yes(any(SECRET in one for one in found))


if __name__ == "__main__":
    main(answer)
