"""Time from interpreter start to the first program's result, relative to a direct call

Fresh processes, turn by turn; the middle of five.
"""

from __future__ import annotations

import statistics
import sys

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_sides import CONFIG, Side, main
from script_steps import first_line_seconds


@tool
def stock(product: str) -> int:
    """How many are left."""
    return len(product)


async def answer(side: Side) -> str:
    times: dict[str, list[float]] = {"program": [], "call": []}
    for _ in range(5):
        for name, taken in times.items():
            taken.append(await first_line_seconds(__file__, side.name, name))
    return f"{statistics.median(times['program']) / statistics.median(times['call']):.1f} times"


async def step(side: Side) -> str:
    if sys.argv[3] == "program":
        return (await side.run("return await tools.stock({ product: 'nut' })", [stock])).result
    call = {"name": "stock", "args": {"product": "nut"}, "id": "one", "type": "tool_call"}
    agent = create_agent(side.model(AIMessage("", tool_calls=[call])), [stock])
    return str((await agent.ainvoke({"messages": ["go"]}, CONFIG))["messages"][-2].content)


if __name__ == "__main__":
    main(answer if len(sys.argv) == 2 else step)
