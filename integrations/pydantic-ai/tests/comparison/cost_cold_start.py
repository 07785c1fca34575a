"""Time from interpreter start to the first program's result, relative to a direct call

Fresh processes, turn by turn; the middle of five.
"""

from __future__ import annotations

import statistics
import sys

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai_sides import Side, main
from script_steps import first_line_seconds


def stock(product: str) -> int:
    return len(product)


async def answer(side: Side) -> str:
    times: dict[str, list[float]] = {"program": [], "call": []}
    for _ in range(5):
        for name, taken in times.items():
            taken.append(await first_line_seconds(__file__, side.name, name))
    return f"{statistics.median(times['program']) / statistics.median(times['call']):.1f} times"


async def step(side: Side) -> str:
    if sys.argv[3] == "program":
        js, python = "return await tools.stock({ product: 'nut' })", "await stock(product='nut')"
        return str((await side.run(js, python, [stock])).told[-1])
    return str((await Agent(TestModel(), tools=[stock]).run("go")).output)


if __name__ == "__main__":
    main(answer if len(sys.argv) == 2 else step)
