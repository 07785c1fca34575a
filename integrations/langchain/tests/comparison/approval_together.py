"""Questions of two concurrent calls are shown together, and each call gets its own answer

Of a tool that calls ``interrupt()``, which both have.
"""

from __future__ import annotations

from langchain_desk import Desk
from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    js = "return (await Promise.all(['a', 'b'].map((question) => tools.ask({ question })))).join()"
    conversation = await side.run(js, [Desk().ask])
    together = len(conversation.waiting) == 2
    for _ in range(3):
        if conversation.waiting:
            await conversation.decide(lambda question: f"yes to {question}")
    return yes(together and conversation.result == "yes to a,yes to b")


if __name__ == "__main__":
    main(answer)
