"""Calls started together run concurrently"""

from __future__ import annotations

import asyncio

from pydantic_ai_sides import PATIENCE_SECONDS, Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    together = asyncio.Barrier(3)

    async def look(place: str) -> str:
        await asyncio.wait_for(together.wait(), PATIENCE_SECONDS / 4)
        return place

    js = "return (await Promise.all(['a', 'b', 'c'].map((place) => tools.look({ place })))).join('')"
    python = "import asyncio\n''.join(await asyncio.gather(look(place='a'), look(place='b'), look(place='c')))"
    return yes((await side.run(js, python, [look])).told[-1] == "abc")


if __name__ == "__main__":
    main(answer)
