"""A date that a tool gives is a date in the program, and goes back as one"""

from __future__ import annotations

from core_sides import AI_SDK, Side, main, run_node
from script_steps import yes

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
    python = PYTHON.replace("call_tool", "call_tool") if side.writes_python else ""
    ran = await side.run(JS, python, execution_policy={"values": "rich"})
    is_date = "true" in (ran.value or "").lower() and ran.was_given == "date"
    if side.is_ours and is_date:
        return 'yes, with `values="rich"`'
    if side.name == AI_SDK and not is_date:
        below = await run_node(JS.replace("{ value: at }", "at"), "run")
        return "no; `run` by itself: " + yes(below.value == "true" and below.was_given == "date")
    return yes(is_date)


if __name__ == "__main__":
    main(answer)
