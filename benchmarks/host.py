"""A host of its own for cold starts and for memory: `python -m benchmarks.host cold <W> | hold <count>`."""

from __future__ import annotations

import sys


def cold(name: str) -> None:
    """Print the result of one program and end."""
    from .programs import by_name
    from .workloads import code_mode_tool

    print(code_mode_tool().execute_sync({"js": by_name(name).js}), flush=True)


async def hold(count: int) -> None:
    """Keep ``count`` programs in the middle of a call until a line comes in; with 0, run one and keep its spare."""
    import asyncio

    from codemode import create_code_mode_tool

    from .programs import HOLD_JS

    arrived, release = asyncio.Semaphore(0), asyncio.Event()

    async def held(n: int) -> int:
        arrived.release()
        await release.wait()
        return n

    tool = create_code_mode_tool({"hold": held})
    if count == 0:
        await tool.execute({"js": "return 1"})
        await asyncio.sleep(0.3)
    running = [asyncio.create_task(tool.execute({"js": HOLD_JS})) for _ in range(count)]
    for _ in range(count):
        await asyncio.wait_for(arrived.acquire(), 30)
    print("holding", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    release.set()
    await asyncio.gather(*running)


def main() -> None:
    """Do what the command line says."""
    what, argument = sys.argv[1:]
    if what == "cold":
        cold(argument)
    else:
        import asyncio

        asyncio.run(hold(int(argument)))


if __name__ == "__main__":
    main()
