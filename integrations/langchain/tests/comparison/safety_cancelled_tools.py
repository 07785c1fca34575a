"""Cancelling the run cancels the pending calls of its program"""

from __future__ import annotations

import asyncio

from langchain_core.tools import tool
from langchain_sides import PATIENCE_SECONDS, Side, main
from script_steps import comes_true, yes


async def answer(side: Side) -> str:
    began, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def export() -> str:
        """Export."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    run = asyncio.create_task(side.run("return await tools.export({})", [export]))
    await asyncio.wait_for(began.wait(), PATIENCE_SECONDS)
    run.cancel()
    return yes(await comes_true(lambda: run.done() and ended.is_set(), PATIENCE_SECONDS))


if __name__ == "__main__":
    main(answer)
