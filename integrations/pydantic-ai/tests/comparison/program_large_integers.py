"""An integer beyond 2^53 passes through a program unchanged"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes

NUMBER = 2**60 + 1


async def answer(side: Side) -> str:
    got: list[int] = []

    def newest() -> int:
        return NUMBER

    def close(number: int) -> int:
        got.append(number)
        return number

    js = "return await tools.close({ number: await tools.newest({}) })"
    conversation = await side.run(js, "await close(number=await newest())", [newest, close])
    return yes(got == [NUMBER] and str(NUMBER) in conversation.said)


if __name__ == "__main__":
    main(answer)
