"""A map with number keys reaches a tool unchanged"""

from __future__ import annotations

from core_sides import AI_SDK, Side, main, run_node
from script_steps import yes

JS = "return await tools.echo({ value: new Map([[1, 'a']]) });"
PYTHON = 'return await call_tool("echo", {"value": {1: "a"}})'


async def answer(side: Side) -> str:
    ran = await side.run(JS, PYTHON, execution_policy={"values": "rich"})
    has_keys = bool(ran.seen) and ran.seen[-1]["given"] in ("{1: 'a'}", "[object Map]")
    if side.name == AI_SDK and ran.was_given != "map":
        below = await run_node("return await tools.echo(new Map([[1, 'a']]))", "run")
        return "no, it is empty; `run` by itself: " + yes(below.was_given == "map")
    if "a Map is no value unless" in ran.error:
        return "no, an error says so"
    return yes(has_keys)


if __name__ == "__main__":
    main(answer)
