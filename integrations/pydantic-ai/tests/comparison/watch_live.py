"""Each call of a program is an event of the run's stream, before the program ends"""

from __future__ import annotations

from typing import Any

from pydantic_ai_sides import HARNESS, Side, main
from script_steps import yes


def stock(product: str) -> int:
    return len(product)


def is_of(event: Any, name: str) -> bool:
    """Whether an event, of any class, tells of a call of this tool."""
    parts = [event, getattr(event, "part", None), getattr(event, "call", None)]
    return name in [getattr(one, field, None) for one in parts for field in ("tool_name", "nested_tool_name")]


async def answer(side: Side) -> str:
    conversation = side.agent(
        side.program("return await tools.stock({ product: 'nut' })", "await stock(product='nut')"), tools=[stock]
    )
    outer = "run_code" if side.name == HARNESS else "codeMode"
    seen: list[str] = []
    async with conversation.agent.run_stream_events("go") as events:
        async for event in events:
            if is_of(event, "stock"):
                seen.append("nested")
            elif type(event).__name__ == "FunctionToolResultEvent" and is_of(event, outer):
                seen.append("ended")
    return yes("ended" in seen and seen.index("ended") > 0 and seen[0] == "nested")


if __name__ == "__main__":
    main(answer)
