"""Changes that a program makes to built-ins affect the next program of the run"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    first = side.program("Array.prototype.map = () => ['mine']; return 'ok'", "def len(x):\n    return 'mine'\n'ok'")
    second = side.program("return [1].map((x) => x)[0]", "len([])")
    return yes((await side.agent(first, second).say()).told[-1] == "mine")


if __name__ == "__main__":
    main(answer)
