"""Dates cross from a tool to the program and back as dates"""

from __future__ import annotations

from core_sides import Side, main, rich_answer

JS = """
const at = await tools.load_date({});
await tools.echo({ value: at });
return at instanceof Date && at.getUTCFullYear() === 2026;
"""
PYTHON = """
at = await call_tool("load_date", {})
await call_tool("echo", {"value": at})
return at.year == 2026
"""


async def answer(side: Side) -> str:
    return await rich_answer(side, JS, PYTHON, "date")


if __name__ == "__main__":
    main(answer)
