"""Changes that a program makes to built-ins affect the next program of the thread"""

from __future__ import annotations

from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    first = side.program("Array.prototype.map = () => ['mine']; return 'ok'", "one")
    second = side.program("return [1].map((x) => x)[0]", "two")
    return yes((await side.agent(first, second).say()).result == "mine")


if __name__ == "__main__":
    main(answer)
