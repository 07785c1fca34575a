"""A program can leave a value for the next one of the run

Ours by ``state``, theirs by a variable of the REPL.
"""

from __future__ import annotations

from langchain_sides import Side, main
from script_steps import yes


def programs(side: Side) -> list[object]:
    if side.is_ours:
        first, second = "await state.set('cart', { nuts: 3 }); return 1", "return (await state.get('cart')).nuts"
    else:
        first, second = "const cart = { nuts: 3 }; 1", "cart.nuts"
    return [side.program(first, "one", is_script=True), side.program(second, "two", is_script=True)]


async def answer(side: Side) -> str:
    return yes((await side.agent(*programs(side)).say()).result == "3")


if __name__ == "__main__":
    main(answer)
