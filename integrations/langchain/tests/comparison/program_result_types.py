"""A number, a boolean and a list returned by a tool keep their types in the program"""

from __future__ import annotations

from typing import Any

from langchain_core.tools import tool
from langchain_sides import Side, main
from script_steps import yes


@tool
def measure() -> dict[str, Any]:
    """Measure."""
    return {"count": 3, "ok": True, "of": ["a"]}


async def answer(side: Side) -> str:
    js = "const m = await tools.measure({}); return m.count === 3 && m.ok === true && Array.isArray(m.of)"
    return yes((await side.run(js, [measure])).result == "true")


if __name__ == "__main__":
    main(answer)
