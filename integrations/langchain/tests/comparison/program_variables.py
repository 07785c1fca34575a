"""Variables and functions of a program exist in the next program"""

from __future__ import annotations

from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    first = side.program("globalThis.n = 20; globalThis.twice = (x) => 2 * x; 'ok'", "one", is_script=True)
    second = side.program("return twice(n) + 2", "two")
    return yes((await side.agent(first, second).say()).result == "42")


if __name__ == "__main__":
    main(answer)
