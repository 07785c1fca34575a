"""Who is cancelled while the renewal of a claim ends still learns what the resume has come to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from waiting import within

from codemode.continuations.renewal import renewed


class Guard:
    """A guard whose claims hold."""

    async def renew(self, key: str) -> bool:
        return True


async def cancelled_as_it_ends(work: Any) -> asyncio.Task[Any]:
    """Run work and cancel it in the moment in which the block has ended and the renewal has not."""
    ends = asyncio.Event()
    task = asyncio.ensure_future(work(ends))
    await ends.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert task.done()
    return task


def test_a_second_cancellation_keeps_what_the_first_one_told():
    async def work(ends: asyncio.Event) -> None:
        async with renewed(Guard(), "key"):
            ends.set()
            raise asyncio.CancelledError from ValueError("what had happened")

    async def scenario() -> None:
        async def told(ends: asyncio.Event) -> BaseException | None:
            try:
                await work(ends)
            except asyncio.CancelledError as error:
                return error.__cause__
            return None

        task = await cancelled_as_it_ends(told)
        assert isinstance(task.result(), ValueError)

    within(scenario())


@pytest.mark.parametrize("fails", [False, True])
def test_a_cancellation_comes_behind_what_the_block_has_come_to(fails: bool):
    async def scenario() -> None:
        recorded: list[str] = []

        async def work(ends: asyncio.Event) -> None:
            try:
                async with renewed(Guard(), "key"):
                    ends.set()
                    if fails:
                        raise ValueError("the program's end")
            except ValueError as error:
                recorded.append(str(error))
            else:
                recorded.append("a value")
            await asyncio.sleep(10)

        task = await cancelled_as_it_ends(work)
        assert task.cancelled()
        assert recorded == ["the program's end" if fails else "a value"]

    within(scenario())
