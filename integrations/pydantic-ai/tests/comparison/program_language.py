"""Language of programs"""

from __future__ import annotations

from pydantic_ai_sides import Side, main

PROGRAMS = {
    "JavaScript": "const left = await tools.stock({}); return left + 1",
    "TypeScript": "const left: number = await tools.stock({}); return left + 1",
    "Python": "left = await stock()\nleft + 1",
}


async def answer(side: Side) -> str:
    def stock() -> int:
        return 6

    came = {
        language: (await side.run(program, program, [stock])).told[-1] == 7 for language, program in PROGRAMS.items()
    }
    return ", ".join(language for language, is_so in came.items() if is_so)


if __name__ == "__main__":
    main(answer)
