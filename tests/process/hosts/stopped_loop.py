"""A host whose caller stops the loop in the very step in which it has its value: no handle of a worker stays open."""

import asyncio
from pathlib import Path

import codemode


def open_descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def run_once(code_mode):
    async def call_and_stop():
        assert await code_mode.execute({"js": "return 1"}) == 1
        raise KeyboardInterrupt

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(call_and_stop())
    except KeyboardInterrupt:
        pass
    finally:
        loop.close()


def main():
    pool = codemode.WorkerPool()
    code_mode = codemode.create_code_mode_tool({}, pool=pool)
    run_once(code_mode)
    before = open_descriptors()
    for _ in range(5):
        run_once(code_mode)
    # The last run's own, which nothing has come after yet.
    assert open_descriptors() <= before + 2, (before, open_descriptors())
    pool.close()
    assert pool.active == 0
    print("ok")


if __name__ == "__main__":
    main()
