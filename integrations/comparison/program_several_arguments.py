"""A tool can be called with several arguments, `add(1, 2)`"""

from __future__ import annotations

from core_sides import AI_SDK, Side, main, run_node
from script_steps import yes


async def answer(side: Side) -> str:
    ran = await side.run("return await tools.add(1, 2)", "return await add(1, 2)")
    has_sum = (ran.value or "").partition(".")[0] == "3"
    if side.name == AI_SDK and not has_sum:
        return "no; `run` by itself: " + yes((await run_node("return await tools.add(1, 2)", "run")).value == "3")
    return yes(has_sum)


if __name__ == "__main__":
    main(answer)
