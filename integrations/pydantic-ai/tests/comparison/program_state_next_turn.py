"""A program can store a value for the next turn of the conversation

The harness with the ``repl_store`` that its README shows: "Keep the REPL across runs".
"""

from __future__ import annotations

from typing import Any

from pydantic_ai_sides import Side, main
from script_steps import yes


class Store:
    """A REPL store in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def load(self, ctx: Any) -> bytes | None:
        return self.kept.get(ctx.conversation_id)

    async def save(self, ctx: Any, state: bytes | None) -> None:
        if state is not None:
            self.kept[ctx.conversation_id] = state


async def answer(side: Side) -> str:
    first = side.program("await state.set('cart', { nuts: 3 }); return 'ok'", "cart = {'nuts': 3}\n'ok'")
    second = side.program("return (await state.get('cart')).nuts", "cart['nuts']")
    capability = side.capability() if side.is_ours else side.capability(repl_store=Store())
    conversation = await side.agent(first, "done", second, capability=capability).say()
    found = yes((await conversation.say()).told[-1] == 3)
    return found if side.is_ours else f"{found}, with `repl_store`"


if __name__ == "__main__":
    main(answer)
