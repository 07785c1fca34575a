"""Work that is done once for all who ask: what it comes to, and what it raises, reaches each of them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from codemode.surfaces.exec_wait.mcp_server import SingleFlight


async def all_of(once: SingleFlight, count: int) -> list[Any]:
    return await asyncio.wait_for(asyncio.gather(*(once.run() for _ in range(count)), return_exceptions=True), 60)


def test_work_is_done_once_for_all_who_ask_meanwhile_and_again_for_who_asks_later():
    async def body() -> None:
        done: list[int] = []

        async def work() -> None:
            await asyncio.sleep(0)
            done.append(len(done))

        once = SingleFlight(work)
        assert await all_of(once, 5) == [None] * 5
        assert done == [0]
        await once.run()
        assert done == [0, 1]

    asyncio.run(body())


def test_what_work_raises_reaches_all_who_wait_for_it_and_no_one_later():
    async def body() -> None:
        problems = [LookupError("not there")]

        async def work() -> None:
            await asyncio.sleep(0)
            if problems:
                raise problems.pop()

        once = SingleFlight(work)
        assert [type(one) for one in await all_of(once, 3)] == [LookupError] * 3
        await once.run()

    asyncio.run(body())


@pytest.mark.parametrize("leaves", ["one", "all"])
def test_who_leaves_ends_the_work_only_when_nobody_else_waits(leaves: str):
    async def body() -> None:
        begun, free = asyncio.Event(), asyncio.Event()
        ends: list[str] = []

        async def work() -> None:
            begun.set()
            try:
                await free.wait()
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise
            ends.append("done")

        once = SingleFlight(work)
        waiting = [asyncio.ensure_future(once.run()) for _ in range(2)]
        await asyncio.wait_for(begun.wait(), 60)
        for one in waiting if leaves == "all" else waiting[:1]:
            one.cancel()
        if leaves == "one":
            await asyncio.wait(waiting[:1], timeout=60)
            free.set()
        await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
        for _ in range(3):  # the cancelled work ends on this loop
            await asyncio.sleep(0)
        assert ends == (["cancelled"] if leaves == "all" else ["done"])

    asyncio.run(body())


def test_a_loop_that_ends_hands_the_work_on_to_who_waits_on_another_one():
    begun, joined, done = threading.Event(), threading.Event(), threading.Event()
    ran_on: list[Any] = []

    async def work() -> None:
        ran_on.append(asyncio.get_running_loop())
        if len(ran_on) == 1:
            begun.set()
            await asyncio.get_running_loop().run_in_executor(None, joined.wait, 60)
            await asyncio.Event().wait()

    once = SingleFlight(work)

    async def first() -> None:
        asking = asyncio.ensure_future(once.run())
        await asyncio.get_running_loop().run_in_executor(None, joined.wait, 60)
        asking.cancel()  # the other one still waits: the work goes on until this loop ends

    async def second() -> None:
        asking = asyncio.ensure_future(once.run())
        await asyncio.sleep(0)
        joined.set()
        await asyncio.wait_for(asking, 60)
        done.set()

    thread = threading.Thread(target=asyncio.run, args=(first(),))
    thread.start()
    assert begun.wait(60)
    asyncio.run(second())
    thread.join(60)
    assert done.is_set()
    assert len(ran_on) == 2
    assert ran_on[0] is not ran_on[1]
