"""Variables and functions of a program exist in the next program"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    first = side.program(
        "globalThis.n = 20; globalThis.twice = (x) => 2 * x; return 'ok'",
        "n = 20\ndef twice(x):\n    return 2 * x\n'ok'",
    )
    conversation = side.agent(first, side.program("return twice(n) + 2", "twice(n) + 2"))
    return yes((await conversation.say()).told[-1] == 42)


if __name__ == "__main__":
    main(answer)
