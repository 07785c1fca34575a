"""Effect of an unexpected exception in a tool

Whether the run goes on, and whether program or model read its text.
"""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_sides import Side, main

SECRET = "postgres://admin:hunter2@db"


@tool
def ship(order: str) -> str:
    """Ship."""
    raise RuntimeError(f"cannot reach {SECRET}")


async def answer(side: Side) -> str:
    js = "try { return await tools.ship({ order: 'a' }) } catch (error) { return 'caught ' + error.message }"
    try:
        conversation = await side.run(js, [ship])
    except RuntimeError:
        return "the run ends"
    caught = "the program can catch it" if "caught" in conversation.result else "the model is told"
    return f"{caught}, {'with' if SECRET in conversation.said else 'without'} its text"


if __name__ == "__main__":
    main(answer)
