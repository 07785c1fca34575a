"""Bytes that a tool gives are bytes in the program, and go back as such"""

from __future__ import annotations

from core_sides import AI_SDK, Side, main, run_node
from script_steps import yes

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
    ran = await side.run(JS, PYTHON, execution_policy={"values": "rich"})
    are_bytes = "true" in (ran.value or "").lower() and ran.was_given == "bytes"
    if side.is_ours and are_bytes:
        return 'yes, with `values="rich"`'
    if side.name == AI_SDK and not are_bytes:
        below = await run_node(JS.replace("{ value: data }", "data"), "run")
        return "no; `run` by itself: " + yes(below.value == "true" and below.was_given == "bytes")
    return yes(are_bytes)


if __name__ == "__main__":
    main(answer)
