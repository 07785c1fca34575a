"""A call can wait for approval and the program resumes there; times that the call before it runs"""

from __future__ import annotations

from core_sides import AGENT_FRAMEWORK, FASTMCP, Side, main

JS = "await tools.echo({ value: 1 }); return await tools.pay({ sum: 7 });"


async def answer(side: Side) -> str:
    if side.name == AGENT_FRAMEWORK:
        return "no, only a whole program" if side.asks_about_whole_programs() else "no"
    if side.name == FASTMCP:
        return "no"  # its tools have no approval
    ran = await side.run(JS, asks=True)
    calls = [one["name"] for one in ran.seen]
    return f"yes; {calls.count('echo')}" if ran.is_paused and calls.count("pay") == 1 else "no"


if __name__ == "__main__":
    main(answer)
