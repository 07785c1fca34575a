"""A program can be saved as a versioned function for other conversations

The harness has one store for all conversations, given as ``repl_store``: it keeps the whole state of the sandbox.
"""

from __future__ import annotations

from typing import Any

from pydantic_ai_sides import Side, main


class Store:
    """A REPL store in memory, the same state for all conversations."""

    def __init__(self) -> None:
        self.kept: bytes | None = None

    async def load(self, ctx: Any) -> bytes | None:
        return self.kept

    async def save(self, ctx: Any, state: bytes | None) -> None:
        self.kept = self.kept if state is None else state


async def answer(side: Side) -> str:
    if not side.is_ours:
        store = Store()
        first = side.program("", "def twice(x):\n    return 2 * x\n'ok'")
        await side.agent(first, capability=side.capability(repl_store=store)).say()
        later = side.agent(side.program("", "twice(21)"), capability=side.capability(repl_store=store))
        return "a function, with a shared `repl_store`; no versions" if (await later.say()).told[-1] == 42 else "no"
    from codemode import ProgramLibrary
    from codemode.stores import MemoryInterruptStore

    library = ProgramLibrary(MemoryInterruptStore())
    await library.save("twice", "return 2 * input.x")
    later = side.agent(
        side.program("return await saved.twice({ x: 21 })", ""), capability=side.capability(library=library)
    )
    has_worked = (await later.say()).told[-1] == 42 and len(await library.history("twice")) == 1
    return "yes, with `library`" if has_worked else "no"


if __name__ == "__main__":
    main(answer)
