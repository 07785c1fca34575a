"""A blocking tool leaves the event loop free"""

from __future__ import annotations

import asyncio
import threading

from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    called, free = threading.Event(), threading.Event()

    def slow() -> bool:
        called.set()
        # Until the loop has had a turn; the time is for one that never has.
        return free.wait(10)

    async def beat() -> None:
        while not called.is_set():  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)
        free.set()

    beating = asyncio.create_task(beat())
    conversation = await side.run("return await tools.slow({})", "await slow()", [slow])
    beating.cancel()
    return yes(conversation.told[-1] is True)


if __name__ == "__main__":
    main(answer)
