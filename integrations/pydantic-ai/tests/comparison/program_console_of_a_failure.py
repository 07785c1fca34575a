"""The model reads the console output of a failed program"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    js = "console.log('got as far as here'); throw new Error('broken')"
    conversation = await side.run(js, "print('got as far as here')\nraise ValueError('broken')")
    return yes("broken" in conversation.said and "got as far as here" in conversation.said)


if __name__ == "__main__":
    main(answer)
