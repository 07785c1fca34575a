"""A pending call can be answered in a graph of another process over the same checkpoints

A new agent and a new middleware stand for the other process; ours has the key and the guard of the first.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_desk import Desk
from langchain_sides import Side, main
from langgraph.checkpoint.memory import InMemorySaver
from script_steps import yes


def options(side: Side, folder: str) -> dict[str, Any]:
    if not side.is_ours:
        return {}
    from codemode.stores import SqliteInterruptStore

    guard = SqliteInterruptStore(Path(folder) / "guard.sqlite").guard
    return {"options": {"continuation": {"keys": "32 random bytes that both processes know", "guard": guard}}}


async def answer(side: Side) -> str:
    desk, saver = Desk(), InMemorySaver()
    js = "await tools.charge({ order: 'a' }); return await tools.ask({ question: 'a?' })"
    with TemporaryDirectory() as folder:
        tools = [desk.charge, desk.ask]
        first = side.agent(side.program(js), tools=tools, checkpointer=saver, options=options(side, folder))
        asked = (await first.say()).waiting
        second = side.agent(tools=tools, checkpointer=saver, options=options(side, folder))
        second.output = {"__interrupt__": asked}
        return yes((await second.decide("because")).result == "because")


if __name__ == "__main__":
    main(answer)
