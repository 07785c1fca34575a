"""20 computing programs do not block the event loop

Ours with a limit of one second, theirs with ten, which count from before its tools are installed; free: it has at
least half the turns that it has without them, but for what its thread waits for a processor.
"""

from __future__ import annotations

import asyncio

from langchain_sides import Side, main
from script_steps import ends
from seen_processes import keeps_free, share_of_turns


async def answer(side: Side) -> str:
    options = {"options": {"execution_policy": {"timeout_ms": 1000}}} if side.is_ours else {"timeout": 10.0}
    programs = [side.agent(side.program("for (;;) {}"), options=options) for _ in range(20)]
    share = await share_of_turns(asyncio.gather(*(ends(one.say()) for one in programs)))
    return keeps_free(share) if all("messages" in one.output for one in programs) else "no, some did not end"


if __name__ == "__main__":
    main(answer)
