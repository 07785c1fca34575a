"""An integer beyond 2^53 crosses from a tool to the program and back unchanged"""

from __future__ import annotations

from core_sides import AI_SDK, Side, main, run_node
from script_steps import yes

JS = "await tools.echo({ value: await tools.load_big({}) }); return 1;"
PYTHON = """
big = await call_tool("load_big", {})
await call_tool("echo", {"value": big["result"] if isinstance(big, dict) else big})
return 1
"""
BIG = str(2**60 + 1)


async def answer(side: Side) -> str:
    ran = await side.run(JS, PYTHON)
    is_exact = bool(ran.seen) and ran.seen[-1]["given"] == BIG
    if side.name == AI_SDK and not is_exact:
        below = await run_node("await tools.echo(await tools.load_big()); return 1", "run")
        return "no, an error says so; `run` by itself: " + yes(below.seen[-1]["given"] == BIG)
    return yes(is_exact)


if __name__ == "__main__":
    main(answer)
