"""A host that runs out of descriptors for a while, before and in the middle of runs."""

import asyncio
import contextlib
import os
import resource
import time
from pathlib import Path

from codemode import WorkerPool, run_code_mode
from codemode.errors import CodeModeWorkerError

hoard: list[int] = []


async def exhaust() -> str:
    with contextlib.suppress(OSError):
        while True:
            hoard.append(os.open("/dev/null", os.O_RDONLY))
    return "exhausted"


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def free() -> None:
    while hoard:
        os.close(hoard.pop())


async def one(js: str = "return 1") -> object:
    try:
        return await run_code_mode(js, [exhaust], pool=pool)
    except CodeModeWorkerError as error:
        return error


async def main() -> None:
    await exhaust()
    assert isinstance(await one(), CodeModeWorkerError)
    free()
    assert await one() == 1
    opened = count_descriptors()
    for _ in range(3):
        assert await one("return await tools.exhaust()") == "exhausted"
        # One may still find a spare; what is wanted is an answer or the proper error.
        for _ in range(4):
            assert isinstance(await one(), int | CodeModeWorkerError)
        free()
        assert await one() == 1
    assert pool.active == 0
    deadline = time.monotonic() + 60
    while abs(count_descriptors() - opened) > 4:  # a thread closes what is done
        assert time.monotonic() < deadline, (opened, count_descriptors())
        await asyncio.sleep(0.001)


resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
pool = WorkerPool()
asyncio.run(main())
pool.close()
print("ok")
