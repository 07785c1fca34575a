"""Language of programs"""

from __future__ import annotations

from core_sides import Side, main


async def answer(side: Side) -> str:
    if (await side.run("const n: number = 7; return n", "return 7")).value == "7":
        return "Python" if side.writes_python else "JavaScript, TypeScript"
    return "another language"


if __name__ == "__main__":
    main(answer)
