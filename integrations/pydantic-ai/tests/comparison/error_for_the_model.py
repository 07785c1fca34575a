"""The message of `ModelRetry` reaches the program as an error that it can catch"""

from __future__ import annotations

from pydantic_ai import ModelRetry
from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    def ship(order: str) -> str:
        raise ModelRetry("the order is closed")

    js = "try { return await tools.ship({ order: 'a' }) } catch (error) { return 'caught ' + error.message }"
    python = (
        "try:\n    said = await ship(order='a')\nexcept Exception as error:\n    said = 'caught ' + str(error)\nsaid"
    )
    said = str((await side.run(js, python, [ship])).told[-1])
    return yes(said.startswith("caught") and "the order is closed" in said)


if __name__ == "__main__":
    main(answer)
