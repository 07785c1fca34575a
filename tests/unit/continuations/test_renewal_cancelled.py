"""Who is cancelled while the renewal of a claim or a lease ends still learns what the resume has come to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import within

from codemode.continuations.guard import keep_claim_renewed
from codemode.host.clock import monotonic_seconds
from codemode.stores import resume_outcome


class Guard:
    """A guard or a store whose claims hold."""

    async def renew(self, key: Any) -> bool:
        return True


RENEWALS = {
    "claim": lambda: keep_claim_renewed(Guard(), "key", monotonic_seconds()),
    "lease": lambda: resume_outcome.keep_lease_renewed(Guard().renew, SimpleNamespace(lease_ms=30_000)),  # type: ignore[arg-type]
}


@pytest.fixture(params=RENEWALS)
def renewal(request: pytest.FixtureRequest) -> Any:
    return RENEWALS[request.param]


async def cancelled_as_it_ends(work: Any) -> asyncio.Task[Any]:
    """Run work and cancel it in the moment in which the block has ended and the renewal has not."""
    ends = asyncio.Event()
    task = asyncio.ensure_future(work(ends))
    await ends.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=60)
    assert task.done()
    return task


def test_a_second_cancellation_keeps_what_the_first_one_told(renewal: Any):
    async def work(ends: asyncio.Event) -> None:
        async with renewal():
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
def test_a_cancellation_comes_behind_what_the_block_has_come_to(fails: bool, renewal: Any):
    async def scenario() -> None:
        recorded: list[str] = []

        async def work(ends: asyncio.Event) -> None:
            try:
                async with renewal():
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
