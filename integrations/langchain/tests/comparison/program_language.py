"""Language of programs"""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_sides import Side, main

PROGRAMS = {
    "JavaScript": "const left = await tools.stock({}); return left + 1",
    "TypeScript": "const left: number = await tools.stock({}); return left + 1",
    "Python": "left = await stock()\nleft + 1",
}


@tool
def stock() -> int:
    """How many are left."""
    return 6


async def answer(side: Side) -> str:
    came = {language: (await side.run(program, [stock])).result == "7" for language, program in PROGRAMS.items()}
    return ", ".join(language for language, is_so in came.items() if is_so)


if __name__ == "__main__":
    main(answer)
