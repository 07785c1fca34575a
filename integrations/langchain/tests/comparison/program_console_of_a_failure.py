"""The model reads the console output of a failed program"""

from __future__ import annotations

from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    conversation = await side.run("console.log('got as far as here'); throw new Error('broken')")
    return yes("broken" in conversation.said and "got as far as here" in conversation.said)


if __name__ == "__main__":
    main(answer)
