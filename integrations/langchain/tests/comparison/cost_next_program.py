"""Time of a run with one program of three calls, relative to a run with three direct calls

In one process, turn by turn, after the first of each; the middle of 30. langchain-quickjs with
``mode="call"``, a fresh REPL for each program as ours.
"""

from __future__ import annotations

import statistics
import time

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_sides import CONFIG, Side, main
from langgraph.checkpoint.memory import InMemorySaver

PLACES = ("nut", "bolt", "screw")
JS = "const n = []; for (const product of ['nut', 'bolt', 'screw']) n.push(await tools.stock({ product })); return n"


@tool
async def stock(product: str) -> int:
    """How many are left."""
    return len(product)


def direct(side: Side) -> object:
    calls = [{"name": "stock", "args": {"product": one}, "id": one, "type": "tool_call"} for one in PLACES]
    return create_agent(side.model(AIMessage("", tool_calls=calls)), [stock], checkpointer=InMemorySaver())


async def answer(side: Side) -> str:
    times: tuple[list[float], list[float]] = ([], [])
    options = {} if side.is_ours else {"mode": "call"}
    for _ in range(31):
        conversation = side.agent(side.program(JS), tools=[stock], options=options)
        for graph, taken in zip((conversation.graph, direct(side)), times, strict=True):
            began = time.perf_counter()
            await graph.ainvoke({"messages": ["go"]}, CONFIG)  # type: ignore[attr-defined]
            taken.append(time.perf_counter() - began)
    run, bare = (statistics.median(taken[1:]) for taken in times)
    return f"{run / bare:.1f} times"


if __name__ == "__main__":
    main(answer)
