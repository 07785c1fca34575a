"""Bytes cross from a tool to the program and back as bytes"""

from __future__ import annotations

from core_sides import Side, main, rich_answer

JS = """
const data = await tools.load_bytes({});
await tools.echo({ value: data });
return data instanceof Uint8Array && data[1] === 255;
"""
PYTHON = """
data = await call_tool("load_bytes", {})
await call_tool("echo", {"value": data})
return data[1] == 255
"""


async def answer(side: Side) -> str:
    return await rich_answer(side, JS, PYTHON, "bytes")


if __name__ == "__main__":
    main(answer)
