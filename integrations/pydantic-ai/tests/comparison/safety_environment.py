"""The process that runs programs has the secrets of the agent's environment"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import in_environment, yes
from seen_processes import environments


async def answer(side: Side) -> str:
    found: list[str] = []

    def look() -> int:
        found.extend(environments())
        return len(found)

    # Before any process of either is started; one that has been started would not have it.
    with in_environment("COMPARISON_API_KEY") as secret, side.fresh_pool() as options:
        await side.run("return await tools.look({})", "await look()", [look], side.capability(**options))
    assert found
    return yes(any(secret in one for one in found))


if __name__ == "__main__":
    main(answer)
