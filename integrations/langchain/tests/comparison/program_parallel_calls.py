"""Calls started together run concurrently"""

from __future__ import annotations

import asyncio

from langchain_core.tools import tool
from langchain_sides import PATIENCE_SECONDS, Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    together = asyncio.Barrier(3)

    @tool
    async def look(place: str) -> str:
        """Look somewhere."""
        await asyncio.wait_for(together.wait(), PATIENCE_SECONDS / 4)
        return place

    js = "return (await Promise.all(['a', 'b', 'c'].map((place) => tools.look({ place })))).join('')"
    return yes((await side.run(js, [look])).result == "abc")


if __name__ == "__main__":
    main(answer)
