"""The model reads what a program printed beside its result"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    conversation = await side.run("console.log('by the way'); return 41 + 1", "print('by the way')\n41 + 1")
    return yes("42" in conversation.said and "by the way" in conversation.said)


if __name__ == "__main__":
    main(answer)
