"""Cancelling the run stops a program in an endless loop

Both with their default limits; whether processors are still busy ten seconds later.
"""

from __future__ import annotations

import asyncio

from pydantic_ai_sides import PATIENCE_SECONDS, Side, main
from script_steps import yes
from seen_processes import falls_silent


async def answer(side: Side) -> str:
    called = asyncio.Event()

    async def ping() -> str:
        called.set()
        return "pong"

    js = "await tools.ping({}); for (;;) {}"
    run = asyncio.create_task(side.run(js, "await ping()\nwhile True:\n    pass", [ping]))
    await asyncio.wait_for(called.wait(), PATIENCE_SECONDS)
    run.cancel()
    await asyncio.wait([run], timeout=PATIENCE_SECONDS)
    return yes(run.done() and await falls_silent(10))


if __name__ == "__main__":
    main(answer)
