"""A host that closes a loop while runs are pending on it: their slots and workers come back."""

import asyncio
import gc
import logging
from pathlib import Path

import codemode

# Asyncio complains about destroyed tasks, as it should: the host did it on purpose.
logging.getLogger("asyncio").setLevel(logging.CRITICAL)
pool = codemode.WorkerPool({"max_workers": 2, "spare_workers": 0})
entered_runs: list[str] = []


async def entered() -> None:
    entered_runs.append("one")


def start_and_close(js: str) -> None:
    loop = asyncio.new_event_loop()
    entered_runs.clear()
    pending = loop.create_task(codemode.run_code_mode(js, {"entered": entered, "never": never}, pool=pool))
    deadline = loop.time() + 60
    while not entered_runs:
        assert loop.time() < deadline
        loop.run_until_complete(asyncio.sleep(0.001))
    loop.run_until_complete(asyncio.sleep(0.05))
    assert not pending.done()
    loop.close()


async def never() -> None:
    await asyncio.Event().wait()


codemode.run_code_mode_sync("return 0", {}, pool=pool)
opened = len(list(Path("/proc/self/fd").iterdir()))
for program in ("await tools.entered(); for (;;);", "await tools.entered(); await tools.never()") * 2:
    start_and_close(program)
    gc.collect()
    assert pool.active == 0, pool
    assert codemode.run_code_mode_sync("return 1", {}, pool=pool) == 1
assert len(list(Path("/proc/self/fd").iterdir())) == opened
print("ok")
