"""Cancelling the run stops a program in an endless loop

Both with a limit of a minute; whether processors are still busy ten seconds later.
"""

from __future__ import annotations

import asyncio
import os

from langchain_core.tools import tool
from langchain_sides import PATIENCE_SECONDS, Side, main
from script_steps import yes
from seen_processes import falls_silent


async def answer(side: Side) -> str:
    called = asyncio.Event()

    @tool
    async def ping() -> str:
        """Answer."""
        called.set()
        return "pong"

    options = {"options": {"execution_policy": {"timeout_ms": 60_000}}} if side.is_ours else {"timeout": 60.0}
    js = "await tools.ping({}); for (;;) {}"
    run = asyncio.create_task(side.run(js, [ping], options=options))
    await asyncio.wait_for(called.wait(), PATIENCE_SECONDS)
    run.cancel()
    await asyncio.wait([run], timeout=PATIENCE_SECONDS / 4)
    stopped = yes(run.done() and await falls_silent(10))
    if stopped == "no":  # its thread would keep this process
        print(stopped, flush=True)
        os._exit(0)
    return stopped


if __name__ == "__main__":
    main(answer)
