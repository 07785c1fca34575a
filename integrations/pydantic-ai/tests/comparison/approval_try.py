"""A program's `try` does not catch a pause

Both with ``HandleDeferredToolCalls``, whose handler approves.
"""

from __future__ import annotations

from pydantic_ai_desk import Desk
from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    desk = Desk()
    js = "let seen = 0; try { await tools.refund({ order: 'a' }) } catch { seen = 1 } finally { seen += 2 } return seen"
    python = (
        "seen = 0\ntry:\n    await refund(order='a')\nexcept Exception:\n    seen = 1\nfinally:\n    seen += 2\nseen"
    )
    conversation = await desk.run(side, js, python)
    return yes(len(desk.asked) == 1 and conversation.told[-1] == 2)


if __name__ == "__main__":
    main(answer)
