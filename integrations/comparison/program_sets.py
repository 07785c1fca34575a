"""A set that a tool gives is a set in the program, and goes back as one"""

from __future__ import annotations

from core_sides import AI_SDK, Side, main, run_node
from script_steps import yes

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
    ran = await side.run(JS, PYTHON, execution_policy={"values": "rich"})
    is_set = "true" in (ran.value or "").lower() and ran.was_given == "set"
    if side.is_ours and is_set:
        return 'yes, with `values="rich"`'
    if side.name == AI_SDK and not is_set:
        below = await run_node(JS.replace("{ value: all }", "all"), "run")
        return "no; `run` by itself: " + yes(below.value == "true" and below.was_given == "set")
    return yes(is_set)


if __name__ == "__main__":
    main(answer)
