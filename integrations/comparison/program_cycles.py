"""A cyclic value reaches a tool unchanged"""

from __future__ import annotations

from core_sides import AI_SDK, Side, main, run_node

JS = "const a = {}; a.a = a; return await tools.echo({ value: a });"
PYTHON = """
a = {}
a["a"] = a
return await call_tool("echo", {"value": a})
"""


async def answer(side: Side) -> str:
    ran = await side.run(JS, PYTHON, execution_policy={"values": "rich"})
    if side.name == AI_SDK and "circular" in ran.error:
        below = await run_node("const a = {}; a.a = a; const b = await tools.echo(a); return b.a.a === b", "run")
        return f"no, an error says so; `run` by itself: {'yes' if below.value == 'true' else 'no'}"
    if "circular" in ran.error:
        return "no, an error says so"
    return "no, it is replaced by a string" if "..." in (ran.value or "") else "yes"


if __name__ == "__main__":
    main(answer)
