"""Sets cross from a tool to the program and back as sets"""

from __future__ import annotations

from core_sides import Side, main, rich_answer

JS = """
const all = await tools.load_set({});
await tools.echo({ value: all });
return all instanceof Set && all.has("a");
"""
PYTHON = """
all = await call_tool("load_set", {})
all.add("b")
await call_tool("echo", {"value": all})
return "a" in all
"""


async def answer(side: Side) -> str:
    return await rich_answer(side, JS, PYTHON, "set")


if __name__ == "__main__":
    main(answer)
