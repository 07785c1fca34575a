"""Workers of runs that rest: they are given up where others need them, and may die without a difference."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from resting_surface import Slow, Surface
from waiting import until

from codemode import Tool
from codemode.errors import CodeModeConcurrencyError


def test_a_run_that_finds_no_worker_rests_on(within, make_pool):
    pool, slow = make_pool(max_workers=1, on_saturation="fail"), Slow()

    async def main():
        surface = Surface([slow.tool], pool=pool)
        run = (await surface.start("return await tools.slow(1)", wait_ms=20)).suspension.run
        assert (run.is_warm, pool.active) == (False, 0)  # where there is no other slot none is kept
        busy = asyncio.ensure_future(surface.start("return await tools.slow(2)"))
        await until(lambda: 2 in slow.calls)
        slow.end(1)
        await until(lambda: run.has_pending_deliveries)
        with pytest.raises(CodeModeConcurrencyError):
            await run.continue_run()
        assert run.is_suspended
        slow.end(2)
        assert (await busy).value == 2
        assert (await run.continue_run()).value == 1

    within(main())


@pytest.mark.parametrize("on_saturation", ["fail", "wait"])
def test_a_run_that_rests_makes_no_other_one_wait_for_its_worker(within, make_pool, on_saturation):
    pool, slow = make_pool(max_workers=3, on_saturation=on_saturation), Slow()

    async def main():
        surface = Surface([slow.tool], pool=pool)
        runs = [(await surface.start(f"return await tools.slow({n})", wait_ms=20)).suspension.run for n in (1, 2, 3)]
        assert [run.is_warm for run in runs] == [True, True, False]
        busy = [asyncio.ensure_future(surface.start(f"return await tools.slow({n})")) for n in (4, 5)]
        await until(lambda: {4, 5} <= set(slow.calls))
        assert ([run.is_warm for run in runs], pool.active) == ([False, True, False], 3)
        busy.append(asyncio.ensure_future(surface.start("return await tools.slow(6)")))
        await until(lambda: 6 in slow.calls)
        assert ([run.is_warm for run in runs], pool.active) == ([False, False, False], 3)
        for number in range(1, 7):
            slow.end(number)
        values = [(await one).value for one in busy]
        return values + [(await run.continue_run()).value for run in runs]

    assert within(main()) == [4, 5, 6, 1, 2, 3]
    assert pool.active == 0


def test_a_worker_that_was_taken_back_is_given_to_nobody(within, make_pool):
    pool, slow = make_pool(max_workers=2, on_saturation="fail"), Slow()

    async def main():
        surface = Surface([slow.tool], pool=pool)
        run = (await surface.start("return await tools.slow(1)", wait_ms=20)).suspension.run
        going_on = asyncio.ensure_future(run.continue_run(30_000))
        await asyncio.sleep(0)
        busy = asyncio.ensure_future(surface.start("return await tools.slow(2)"))
        await until(lambda: 2 in slow.calls)
        refused = await surface.start("return 3")
        assert type(refused.error) is CodeModeConcurrencyError
        assert run.is_warm
        slow.end(1)
        slow.end(2)
        return (await going_on).value, (await busy).value

    assert within(main()) == (1, 2)
    assert pool.active == 0


def test_a_tenants_share_gives_up_what_rests_in_it_and_the_whole_pool_what_rests_anywhere(within, make_pool):
    pool, slow = make_pool(max_workers=3, on_saturation="fail"), Slow()
    share = pool.share("tenant", max_workers=2)

    async def main():
        mine, others = Surface([slow.tool], pool=share), Surface([slow.tool], pool=pool)
        run = (await mine.start("return await tools.slow(1)", wait_ms=20)).suspension.run
        busy = [asyncio.ensure_future(others.start(f"return await tools.slow({n})")) for n in (2, 3)]
        await until(lambda: {2, 3} <= set(slow.calls))
        assert (run.is_warm, pool.active) == (True, 3)
        busy.append(asyncio.ensure_future(others.start("return await tools.slow(4)")))
        await until(lambda: 4 in slow.calls)
        assert (run.is_warm, pool.active, share.active) == (False, 3, 0)
        for number in (2, 3, 4):
            slow.end(number)
        await asyncio.gather(*busy)
        run = (await mine.start("return await tools.slow(5)", wait_ms=20)).suspension.run
        assert run.is_warm
        one = asyncio.ensure_future(mine.start("return await tools.slow(6)"))
        two = asyncio.ensure_future(mine.start("return await tools.slow(7)"))
        await until(lambda: {6, 7} <= set(slow.calls))
        assert (run.is_warm, share.active) == (False, 2)
        for number in (5, 6, 7):
            slow.end(number)
        await asyncio.gather(one, two)
        return (await run.continue_run()).value

    assert within(main()) == 5
    assert (pool.active, share.active) == (0, 0)


def test_a_sync_tool_that_runs_keeps_no_slot_of_a_run_without_a_worker(within, make_pool, model_waits):
    pool, begun, may_end = (
        make_pool(max_workers=1, on_saturation="fail"),
        threading.Event(),
        threading.Event(),
    )

    def wait(_input: Any, _context: Any) -> int:
        begun.set()
        assert may_end.wait(60)
        return 7

    async def main():
        surface = Surface([Tool("wait", execute=wait)], pool=pool)
        run = (await model_waits.left(surface.start("return await tools.wait({})"), begun.is_set)).suspension.run
        assert (run.is_warm, begun.is_set(), pool.active) == (False, True, 0)
        assert (await surface.start("return 1")).value == 1
        may_end.set()
        return await run.continue_run()

    assert within(main()).value == 7
    assert pool.active == 0


def test_a_worker_that_dies_at_rest_makes_no_difference(within, pool):
    slow = Slow()

    async def main():
        run = (await Surface([slow.tool], pool=pool).start("return await tools.slow(1)", wait_ms=20)).suspension.run
        run._runner._lease.process.kill()
        await until(lambda: not run.is_warm)
        slow.end(1)
        return await run.continue_run()

    assert within(main()).value == 1
