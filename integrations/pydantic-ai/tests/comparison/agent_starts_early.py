"""A program starts while the model is still writing it

The harness with ``eager=True``; ours has no such option.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    began, order = asyncio.Event(), list[str]()

    def find(number: int) -> int:
        order.append("called")
        began.set()
        return number

    js = ['{"js": "const a = await tools.find({ number: 1 });\\n', 'return a"}']
    python = ['{"code": "a = await find(number=1)\\nb = 1\\n', 'a"}']
    name, texts = ("codeMode", js) if side.is_ours else ("run_code", python)

    async def stream(messages: Any, info: Any) -> Any:
        if len(messages) > 1:
            yield "done"
            return
        yield {0: DeltaToolCall(name, texts[0], tool_call_id="call")}
        try:  # the rest of the program comes when the first line has run, or was given its time
            await asyncio.wait_for(began.wait(), 5)
        except TimeoutError:
            order.append("written")
        yield {0: DeltaToolCall(None, texts[1])}

    capability = side.capability() if side.is_ours else side.capability(eager=True)
    agent: Agent[Any, str] = Agent(FunctionModel(stream_function=stream), tools=[find], capabilities=[capability])
    async with agent.run_stream_events("go") as events:
        async for _ in events:
            pass
    early = yes(order[0] == "called")
    return early if side.is_ours else f"{early}, with `eager`"


if __name__ == "__main__":
    main(answer)
