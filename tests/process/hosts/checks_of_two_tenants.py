"""A host of two tenants whose programs have large and small inputs checked, and images looked at, all at once.

Every check that is interrupted for another tenant's is one that computes the same of another value. The event loop must
go on: a watch in a thread says where each thread is when it does not.
"""

import asyncio
import faulthandler
import os
import sys
import threading

from pydantic import BaseModel

import codemode

STANDSTILL_SECONDS, ROUNDS = 30, 4
beats = 0
ended = threading.Event()


class Row(BaseModel):
    """One of many."""

    a: int


class Rows(BaseModel):
    """What a person is shown."""

    rows: list[Row] = []
    n: int = 0


async def gated(input: Rows) -> int:  # noqa: A002 - as tools have it
    """Do what a person allows."""
    return input.n


async def pause(input: dict[str, object]) -> None:  # noqa: A002 - as above
    """Let the large one begin."""
    await asyncio.sleep(0.05)


async def image(input: dict[str, int]) -> codemode.MediaContent:  # noqa: A002 - as above
    """Give an image of some size."""
    return codemode.MediaContent(bytes(input["mib"] << 20) + os.urandom(8), "image/png")


PROGRAMS = (
    """
    const rows = Array.from({ length: 20000 }, (_, i) => ({ a: i })); const one = tools.gated({ rows });
    await tools.pause({}); const two = tools.gated({ n: 1 }); return [await one, await two];
    """,
    "return (await Promise.all([8, 0, 8, 0, 0, 0, 0, 0].map((mib) => tools.image({ mib })))).length",
)


def watch() -> None:
    """End the host with the stacks of all threads when its loop has not gone on for long."""
    seen = -1
    while not ended.wait(STANDSTILL_SECONDS):
        if seen == beats:
            faulthandler.dump_traceback(all_threads=True)
            os._exit(9)
        seen = beats


async def beat() -> None:
    global beats
    while True:
        beats += 1
        await asyncio.sleep(0.01)


async def main() -> None:
    beating = asyncio.ensure_future(beat())
    tools = [
        codemode.Tool("gated", execute=gated, input_schema=Rows, needs_approval=True),
        codemode.Tool("pause", execute=pause),
        codemode.Tool("image", execute=image),
    ]
    async with codemode.WorkerPool({"max_workers": 4, "on_saturation": "wait"}) as pool:
        shares = [pool.share(name, max_workers=2) for name in "ab"]
        tenants = [
            codemode.create_code_mode_tool(tools, {"approval": {"mode": "interrupt"}}, pool=one) for one in shares
        ]
        for _ in range(ROUNDS):
            runs = [one.execute({"js": js}) for js in PROGRAMS for one in tenants]
            *asked, first, second = await asyncio.gather(*runs)
            assert all(isinstance(one, codemode.Interrupt) for one in asked), asked
            assert [first, second] == [8, 8]
    beating.cancel()


threading.Thread(target=watch, daemon=True).start()
asyncio.run(main())
ended.set()
sys.stdout.write("ok\n")
