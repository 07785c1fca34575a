"""With 20 programs that compute at once the event loop stays free

Each with a limit of one second; free: at least ten turns a second.
"""

from __future__ import annotations

import asyncio
import time

from langchain_sides import Side, main
from script_steps import ends, yes
from seen_processes import turns_during


async def answer(side: Side) -> str:
    options = {"options": {"execution_policy": {"timeout_ms": 1000}}} if side.is_ours else {"timeout": 1.0}
    programs = [side.agent(side.program("for (;;) {}"), options=options) for _ in range(20)]
    began = time.monotonic()
    turns, _ = await turns_during(asyncio.gather(*(ends(one.say()) for one in programs)))
    return yes(turns >= 10 * (time.monotonic() - began) and all("messages" in one.output for one in programs))


if __name__ == "__main__":
    main(answer)
