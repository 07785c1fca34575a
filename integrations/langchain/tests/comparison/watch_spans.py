"""Traces have a run for each call of a program, below that of the program

By a callback handler, as tracers are.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_desk import Desk
from langchain_sides import CONFIG, Side, main


class Tracer(AsyncCallbackHandler):
    """Notes which run is below which."""

    def __init__(self) -> None:
        self.parents: dict[UUID, UUID | None] = {}
        self.names: dict[UUID, str] = {}

    async def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        self.parents[run_id], self.names[run_id] = (
            parent_run_id,
            (serialized or {}).get("name") or kwargs.get("name") or "",
        )

    async def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        self.parents[run_id] = parent_run_id


async def answer(side: Side) -> str:
    tracer = Tracer()
    conversation = side.agent(side.program("return await tools.charge({ order: 'a' })"), tools=[Desk().charge])
    await conversation.say(config={**CONFIG, "callbacks": [tracer]})
    outer = "codeMode" if side.is_ours else "eval"
    above = next((run for run, name in tracer.names.items() if name == "charge"), None)
    is_told = above is not None
    while above is not None:
        above = tracer.parents.get(above)
        if above is not None and tracer.names.get(above) == outer:
            return "yes"
    return "a run, but not below it" if is_told else "no"


if __name__ == "__main__":
    main(answer)
