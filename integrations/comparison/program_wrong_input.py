"""A wrong input is reported before any tool runs"""

from __future__ import annotations

from core_sides import Side, main
from script_steps import yes

JS = "await tools.add({ a: 1, b: 2 }); return await tools.add({ a: 1 });"
PYTHON = """
await call_tool("add", {"a": 1, "b": 2})
return await call_tool("add", {"a": 1})
"""


async def answer(side: Side) -> str:
    ran = await side.run(JS, PYTHON)
    return yes(bool(ran.error) and not ran.seen)


if __name__ == "__main__":
    main(answer)
