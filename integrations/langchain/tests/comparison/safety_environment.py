"""Secrets in the agent's environment are in that of the process that runs programs"""

from __future__ import annotations

import os

from langchain_core.tools import tool
from langchain_sides import Side, main
from script_steps import yes
from seen_processes import descendants, environment_of

SECRET = "hunter2-of-the-comparison"


async def answer(side: Side) -> str:
    # Before any process of either is started; one that has been started would not have it.
    os.environ["COMPARISON_API_KEY"] = SECRET
    environments: list[str] = []

    @tool
    def look() -> int:
        """Look at the processes."""
        environments.extend(environment_of(pid) for pid in descendants())
        return len(environments)

    with side.fresh_pool() as options:
        await side.run("return await tools.look({})", [look], options=options)
    if not environments:  # programs run in the agent's process itself
        environments.append(os.environ["COMPARISON_API_KEY"])
    return yes(any(SECRET in one for one in environments))


if __name__ == "__main__":
    main(answer)
