"""20 computing programs do not block the event loop

Each with a limit of one second; free: it has at least half the turns that it has without them, but for what its
thread waits for a processor.
"""

from __future__ import annotations

import asyncio

from pydantic_ai_sides import Side, main
from script_steps import ends
from seen_processes import keeps_free, share_of_turns


async def answer(side: Side) -> str:
    if side.is_ours:
        capability = side.capability(options={"execution_policy": {"timeout_ms": 1000}})
    else:
        capability = side.capability(resource_limits={"max_duration_secs": 1})
    programs = [
        side.agent(side.program("for (;;) {}", "while True:\n    pass"), capability=capability) for _ in range(20)
    ]
    share = await share_of_turns(asyncio.gather(*(ends(one.say()) for one in programs)))
    return keeps_free(share) if all(one.told for one in programs) else "no, some did not end"


if __name__ == "__main__":
    main(answer)
