"""A program can store a value for the next program of the run

Ours by state, the harness by a variable of its REPL.
"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    first = side.program("await state.set('cart', { nuts: 3 }); return 'ok'", "cart = {'nuts': 3}\n'ok'")
    second = side.program("return (await state.get('cart')).nuts", "cart['nuts']")
    return yes((await side.agent(first, second).say()).told[-1] == 3)


if __name__ == "__main__":
    main(answer)
