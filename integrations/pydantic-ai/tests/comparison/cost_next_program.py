"""Time of a run with one program of three calls, relative to a run with three direct calls

In one process, turn by turn, after the first of each; the middle of 30.
"""

from __future__ import annotations

import statistics
import time

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_sides import Side, main

PLACES = ("nut", "bolt", "screw")
JS = "const n = []; for (const product of ['nut', 'bolt', 'screw']) n.push(await tools.stock({ product })); return n"
PYTHON = "[await stock(product='nut'), await stock(product='bolt'), await stock(product='screw')]"


async def stock(product: str) -> int:
    return len(product)


def direct() -> Agent[None, str]:
    def respond(messages: list[object], _info: object) -> ModelResponse:
        calls = [ToolCallPart("stock", {"product": place}) for place in PLACES]
        return ModelResponse(parts=calls if len(messages) == 1 else [TextPart("done")])

    return Agent(FunctionModel(respond), tools=[stock])  # type: ignore[arg-type]


async def answer(side: Side) -> str:
    programs, plain, times = [], direct(), ([], [])
    for _ in range(31):
        conversation = side.agent(side.program(JS, PYTHON), tools=[stock])
        programs.append(conversation)
        for agent, taken in zip((conversation.agent, plain), times, strict=True):
            began = time.perf_counter()
            await agent.run("go")
            taken.append(time.perf_counter() - began)
    assert all(one.told == [[3, 4, 5]] for one in programs)
    run, bare = (statistics.median(taken[1:]) for taken in times)
    return f"{run / bare:.1f} times"


if __name__ == "__main__":
    main(answer)
