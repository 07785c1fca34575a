"""Maximum number of calls of one program, by default"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import ends


async def answer(side: Side) -> str:
    made: list[int] = []

    async def note(number: int) -> int:
        made.append(number)
        return number

    js = "for (let number = 0; number < 2000; number += 1) await tools.note({ number })"
    python = "for number in range(2000):\n    await note(number=number)"
    await ends(side.run(js, python, [note]))
    return f"{len(made):,}"


if __name__ == "__main__":
    main(answer)
