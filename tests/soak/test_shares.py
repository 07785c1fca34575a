"""A share of a pool: one tenant's flood does not hold up another, and every slot comes back to both."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from suite import full_only
from tests.support.leftovers import nothing_left
from tests.support.waiting import until, within

from codemode import CodeModeError, WorkerPool, run_code_mode
from codemode.errors import CodeModeConcurrencyError, CodeModeWorkerError


@pytest.fixture
def make_pool() -> Iterator[Callable[..., WorkerPool]]:
    made: list[WorkerPool] = []

    def make(**options: Any) -> WorkerPool:
        made.append(WorkerPool({"max_workers": 4, "on_saturation": "wait", **options}))
        return made[-1]

    with nothing_left():
        yield make
        for pool in made:
            pool.close()
            assert pool.active == 0


class Hold:
    """A tool that keeps its invocation in a call until it is released."""

    def __init__(self) -> None:
        self.held = 0
        self._changed = asyncio.Condition()
        self._release = asyncio.Event()

    async def hold(self) -> str:
        async with self._changed:
            self.held += 1
            self._changed.notify_all()
        await self._release.wait()
        return "released"

    def start(self, pool: WorkerPool, count: int) -> list[asyncio.Task[Any]]:
        work = (run_code_mode("return await tools.hold()", [self.hold], pool=pool) for _ in range(count))
        return [asyncio.create_task(one) for one in work]

    async def until_held(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.held >= count)

    def release(self) -> None:
        self._release.set()


def test_a_flood_of_one_tenant_leaves_the_others_share_alone(make_pool: Any) -> None:
    pool = make_pool()

    async def main() -> None:
        flooding, calm = pool.share("flooding", max_workers=2), pool.share("calm", max_workers=2)
        hold = Hold()
        flood = hold.start(flooding, 50)
        await hold.until_held(2)
        # With 48 more that wait, none of which can move, the other tenant is served as if it were alone.
        for number in range(10):
            assert await run_code_mode(f"return {number}", (), pool=calm) == number
        both = [run_code_mode(f"return {number}", (), pool=calm) for number in range(10)]
        assert await asyncio.gather(*both) == list(range(10))
        assert hold.held == 2
        assert (flooding.active, calm.active, pool.active) == (2, 0, 2)
        hold.release()
        assert await asyncio.gather(*flood) == ["released"] * 50
        assert (flooding.active, pool.active) == (0, 0)

    within(main())


@pytest.mark.full
def test_without_shares_the_flood_would_have_held_it_up(make_pool: Any) -> None:
    pool = make_pool()

    async def main() -> None:
        hold = Hold()
        flood = hold.start(pool, 50)
        await hold.until_held(4)
        other = asyncio.create_task(run_code_mode("return 1", (), pool=pool))
        done, _ = await asyncio.wait([other], timeout=0.2)
        assert not done
        hold.release()
        assert await other == 1
        await asyncio.gather(*flood)

    within(main())


def test_what_has_no_share_waits_behind_no_more_of_a_tenant_than_its_share(make_pool: Any) -> None:
    pool = make_pool(max_workers=2)

    async def main() -> None:
        share, hold = pool.share("large", max_workers=3), Hold()
        flood = hold.start(share, 20)
        await hold.until_held(2)
        await until(lambda: pool._slot_queue._waiting)
        # Two have the slots and one stands in the pool's queue: the other 17 are in the share.
        assert sum(map(len, pool._slot_queue._waiting)) == 1
        assert sum(map(len, share._slot_queue._waiting)) == 17
        hold.release()
        await asyncio.gather(*flood)

    within(main())


def test_a_share_is_one_for_its_name(make_pool: Any) -> None:
    pool = make_pool()
    share = pool.share("tenant", max_workers=2)
    assert pool.share("tenant", max_workers=2) is share
    assert pool.share("other", max_workers=2) is not share
    with pytest.raises(ValueError, match="'tenant' has max_workers=2, not 3"):
        pool.share("tenant", max_workers=3)
    with pytest.raises(ValueError, match="max_workers"):
        pool.share("nonsense", max_workers=0)
    del share
    gc.collect()
    # Nobody holds it and nothing runs in it: another size may be given, and names do not pile up.
    assert pool.share("tenant", max_workers=3).options.max_workers == 3
    assert list(pool._shares) in ([], ["tenant"])


def test_a_share_lives_as_long_as_something_runs_in_it(make_pool: Any) -> None:
    pool = make_pool()

    async def main() -> None:
        hold = Hold()
        tasks = hold.start(pool.share("tenant", max_workers=1), 1)
        await hold.until_held(1)
        gc.collect()
        again = pool.share("tenant", max_workers=1)
        assert again.active == 1
        hold.release()
        await asyncio.gather(*tasks)
        assert again.active == 0

    within(main())


def test_a_full_share_refuses_where_the_pool_does_not_wait(make_pool: Any) -> None:
    pool = make_pool(on_saturation="fail")

    async def main() -> None:
        share, hold = pool.share("tenant", max_workers=1), Hold()
        tasks = hold.start(share, 1)
        await hold.until_held(1)
        with pytest.raises(CodeModeConcurrencyError) as refused:
            await run_code_mode("return 1", (), pool=share)
        assert refused.value.details == {"max_workers": 1}
        assert await run_code_mode("return 1", (), pool=pool) == 1
        hold.release()
        await asyncio.gather(*tasks)
        assert share.active == 0

    within(main())


def test_waiting_in_the_share_and_in_the_pool_is_bounded_together(make_pool: Any) -> None:
    pool = make_pool(max_workers=1, wait_timeout_ms=300)

    async def main() -> None:
        share, hold = pool.share("tenant", max_workers=1), Hold()
        tasks = hold.start(pool, 1)
        await hold.until_held(1)
        waiting = [asyncio.create_task(run_code_mode("return 1", (), pool=share)) for _ in range(3)]
        outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
        assert {type(outcome) for outcome in outcomes} == {CodeModeConcurrencyError}
        assert (share.active, pool.active) == (0, 1)
        hold.release()
        await asyncio.gather(*tasks)

    within(main())


@pytest.mark.parametrize("ends", ["is cancelled", *full_only("times out", "returns", "throws")])
def test_every_slot_comes_back_to_share_and_pool(make_pool: Any, ends: str) -> None:
    pool = make_pool()
    program = {"returns": "return 1", "throws": "throw 1", "times out": "for (;;);", "is cancelled": "for (;;);"}[ends]

    async def main() -> None:
        share = pool.share("tenant", max_workers=2)
        options = {"execution_policy": {"timeout_ms": 200 if ends == "times out" else 20_000}}
        tasks = [asyncio.create_task(run_code_mode(program, (), options=options, pool=share)) for _ in range(6)]
        if ends == "is cancelled":
            await until(lambda: share.active == 2)
            for task in tasks:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(outcome == 1 or isinstance(outcome, (CodeModeError, asyncio.CancelledError)) for outcome in outcomes)
        assert (share.active, pool.active) == (0, 0)
        assert await run_code_mode("return 2", (), pool=share) == 2

    within(main())


def test_closing_a_share_closes_that_share_alone(make_pool: Any) -> None:
    pool = make_pool()
    share = pool.share("tenant", max_workers=2)
    assert within(run_code_mode("return 1", (), pool=share)) == 1
    assert share.isolation is pool.isolation is not None
    share.close()
    with pytest.raises(CodeModeWorkerError, match="closed"):
        within(run_code_mode("return 1", (), pool=share))
    assert within(run_code_mode("return 1", (), pool=pool)) == 1


def test_a_share_of_a_closed_pool_runs_nothing(make_pool: Any) -> None:
    pool = make_pool()
    share = pool.share("tenant", max_workers=2)
    pool.close()
    with pytest.raises(CodeModeWorkerError, match="closed"):
        within(run_code_mode("return 1", (), pool=share))
    assert share.active == 0


def test_a_share_starts_afresh_in_a_forked_child(make_pool: Any) -> None:
    pool = make_pool()
    readable, writable = os.pipe()

    async def main() -> None:
        share, hold = pool.share("tenant", max_workers=1), Hold()
        tasks = hold.start(share, 1)
        await hold.until_held(1)
        pid = os.fork()
        if pid == 0:
            os.write(writable, f"{share.active} {pool.active}".encode())
            os._exit(0)
        await asyncio.to_thread(os.waitpid, pid, 0)
        hold.release()
        await asyncio.gather(*tasks)

    within(main())
    os.close(writable)
    with os.fdopen(readable, "rb") as said:
        assert said.read() == b"0 0"
