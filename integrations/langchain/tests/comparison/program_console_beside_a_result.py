"""The model reads what a program printed beside its result"""

from __future__ import annotations

from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    conversation = await side.run("console.log('by the way'); return 41 + 1")
    return yes("42" in conversation.said and "by the way" in conversation.said)


if __name__ == "__main__":
    main(answer)
