"""Whose cancellation it is that work sees: its own task's, or that of something inside it."""

from __future__ import annotations

import asyncio

from codemode.host.cancellation import is_cancelled_from_outside


def cancelled_within():
    raise asyncio.CancelledError


async def seen_by(work):
    """Run work in the current task and return whether what it raised came from outside; None when nothing did."""
    task = asyncio.current_task()
    try:
        await work
    except (asyncio.CancelledError, GeneratorExit):
        return is_cancelled_from_outside(task)
    return None


async def inside():
    cancelled_within()


def test_a_cancellation_from_inside_is_the_works_own():
    async def run():
        other = asyncio.get_running_loop().create_future()
        other.cancel()
        return [await seen_by(inside()), await seen_by(other), await seen_by(asyncio.sleep(0))]

    assert asyncio.run(run()) == [False, False, None]


def test_a_cancellation_of_the_task_comes_from_outside():
    async def run():
        begun = asyncio.Event()

        async def waiting():
            begun.set()
            await asyncio.get_running_loop().create_future()

        task = asyncio.create_task(seen_by(waiting()))
        await asyncio.wait_for(begun.wait(), 60)
        task.cancel()
        return await asyncio.wait_for(task, 60)

    assert asyncio.run(run()) is True


def test_one_that_was_taken_back_does_not():
    async def run():
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        assert await seen_by(asyncio.sleep(0)) is True
        task.uncancel()
        return await seen_by(inside())

    assert asyncio.run(run()) is False


def test_what_is_closed_by_another_task_or_by_none_is_ended_from_outside():
    async def run():
        mine = asyncio.current_task()
        assert not is_cancelled_from_outside(mine)
        assert is_cancelled_from_outside(None)
        return await asyncio.create_task(other(mine)), mine

    async def other(task):
        return is_cancelled_from_outside(task)

    ended, task = asyncio.run(run())
    assert ended
    assert is_cancelled_from_outside(task)  # no loop runs any more
