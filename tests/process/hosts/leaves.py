"""A host that ends in the middle of two runs, one of which loops for ever. Arguments: how, start method."""

import asyncio
import os
import signal
import sys

import codemode

looping, hanging = asyncio.Event(), asyncio.Event()
ENDINGS = {
    "sys.exit": lambda: sys.exit(3),
    "os._exit": lambda: os._exit(3),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "abort": os.abort,
    "error": lambda: 1 // 0,
}


async def loops() -> None:
    looping.set()


async def never() -> None:
    hanging.set()
    await asyncio.Event().wait()


async def main(how: str, start_method: str) -> None:
    pool = codemode.WorkerPool({"start_method": start_method})
    endless = asyncio.create_task(codemode.run_code_mode("await tools.loops(); for (;;);", [loops], pool=pool))
    await looping.wait()
    waiting = asyncio.create_task(codemode.run_code_mode("await tools.never()", [never]))
    await hanging.wait()
    ENDINGS[how]()
    await asyncio.gather(endless, waiting)


asyncio.run(main(*sys.argv[1:]))
