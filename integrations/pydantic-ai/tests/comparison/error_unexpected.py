"""Effect of an unexpected exception in a tool

Whether the run goes on, and whether program or model read its text.
"""

from __future__ import annotations

from pydantic_ai_sides import Side, main

SECRET = "postgres://admin:hunter2@db"


async def answer(side: Side) -> str:
    def ship(order: str) -> str:
        raise RuntimeError(f"cannot reach {SECRET}")

    js = "try { return await tools.ship({ order: 'a' }) } catch (error) { return 'caught ' + error.message }"
    python = (
        "try:\n    said = await ship(order='a')\nexcept Exception as error:\n    said = 'caught ' + str(error)\nsaid"
    )
    conversation = side.agent(side.program(js, python), tools=[ship])
    try:
        await conversation.say()
    except RuntimeError:
        return "the run ends"
    caught = "the program can catch it" if conversation.said.startswith("caught") else "the model is told"
    return f"{caught}, {'with' if SECRET in conversation.said else 'without'} its text"


if __name__ == "__main__":
    main(answer)
