"""The process that runs programs has the secrets of the agent's environment"""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_sides import Side, main
from script_steps import in_environment, yes
from seen_processes import environments


async def answer(side: Side) -> str:
    found: list[str] = []

    @tool
    def look() -> int:
        """Look at the processes."""
        found.extend(environments())
        return len(found)

    # Before any process of either is started; one that has been started would not have it.
    with in_environment("COMPARISON_API_KEY") as secret, side.fresh_pool() as options:
        await side.run("return await tools.look({})", [look], options=options)
    if not found:  # programs run in the agent's process itself
        found.append(secret)
    return yes(any(secret in one for one in found))


if __name__ == "__main__":
    main(answer)
