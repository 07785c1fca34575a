"""Characters that the model reads of a result of 1,000,000 characters"""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_sides import Side, main


@tool
def export() -> str:
    """Export."""
    return "line of text\n" * 76_923 + "."


async def answer(side: Side) -> str:
    return f"{len((await side.run('return await tools.export({})', [export])).said):,}"


if __name__ == "__main__":
    main(answer)
