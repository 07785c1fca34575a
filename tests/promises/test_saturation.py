"""Who waits for a worker, and that no invocation waits for one that waits for it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from suite import each_row, full_only, rounds
from waiting import within

from codemode import PoolOptions, Tool, WorkerPool, create_code_mode_tool, run_code_mode, run_code_mode_sync
from codemode.errors import CodeModeConcurrencyError
from codemode.workers import lease
from codemode.workers import pool as available_memory
from codemode.workers.lease import MAX_EXTRA_SLOTS, InvocationSlot

WAIT = {"execution_policy": {"on_saturation": "wait", "timeout_ms": 60_000}}


FAIL = {"execution_policy": {"on_saturation": "fail"}}


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(PoolOptions(max_workers=4)) as made:
        yield made


async def inner(pool: WorkerPool, options: Any = WAIT) -> int:
    return await run_code_mode("return await tools.one()", [Tool("one", execute=lambda: 1)], options=options, pool=pool)


def inner_sync(pool: WorkerPool) -> int:
    return run_code_mode_sync("return await tools.one()", [Tool("one", execute=lambda: 1)], options=WAIT, pool=pool)


# --- the wish to wait ---


def holding(pool: WorkerPool, options: Any = None) -> Any:
    """Begin as many invocations as the pool has slots; gives what releases them, and their tasks."""

    async def hold() -> Any:
        release, arrived = asyncio.Event(), asyncio.Semaphore(0)

        async def wait() -> None:
            arrived.release()
            await release.wait()

        tools = [Tool("wait", execute=wait)]
        slots = pool.options.max_workers or 0
        tasks = [
            asyncio.create_task(run_code_mode("await tools.wait()", tools, pool=pool, options=options))
            for _ in range(slots)
        ]
        for _ in range(slots):
            await asyncio.wait_for(arrived.acquire(), 60)
        return release, tasks

    return hold()


@each_row("said", [None, "fail", "wait"])
@each_row("pools", ["fail", "wait"])
@each_row("shared", [True, *full_only(False)])
def test_the_wish_to_wait_goes_with_each_invocation(said: str | None, pools: Any, shared: bool):
    async def scenario() -> None:
        with WorkerPool(PoolOptions(max_workers=1, on_saturation=pools)) as whole:
            pool = whole.share("tenant", max_workers=1) if shared else whole
            release, tasks = await holding(pool)
            options = {"execution_policy": {"on_saturation": said}}
            other = asyncio.create_task(run_code_mode("return 1", [], pool=pool, options=options))
            if (said or pools) == "fail":
                with pytest.raises(CodeModeConcurrencyError, match=r"all 1 code mode workers .*are busy"):
                    await other
            else:
                await asyncio.wait([other], timeout=0.2)
                assert not other.done()
            release.set()
            await asyncio.gather(*tasks)
            if not other.done():
                assert await other == 1

    within(scenario())


def test_the_pools_wait_timeout_holds_for_who_wants_to_wait():
    async def scenario() -> None:
        with WorkerPool(PoolOptions(max_workers=1, wait_timeout_ms=50)) as pool:
            release, tasks = await holding(pool)
            with pytest.raises(CodeModeConcurrencyError, match="after waiting 50 ms"):
                await run_code_mode("return 1", [], pool=pool, options=WAIT)
            release.set()
            await asyncio.gather(*tasks)

    within(scenario())


# --- programs inside nested calls of programs ---


async def _in_a_task(pool: WorkerPool) -> int:
    return await asyncio.create_task(inner(pool))


async def _in_a_thread(pool: WorkerPool) -> int:
    return await asyncio.to_thread(inner_sync, pool)


async def _in_a_copied_context(pool: WorkerPool) -> int:
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().create_task(inner(pool), context=context)


async def _in_an_executor(pool: WorkerPool) -> int:
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as executor:
        return await asyncio.get_running_loop().run_in_executor(executor, context.run, inner_sync, pool)


async def _items(pool: WorkerPool) -> Any:
    yield await inner(pool)


OTHER_NESTED = (_in_a_task, _in_a_copied_context, _in_an_executor, _items)


def sub_agent(pool: WorkerPool, nested: Any) -> Tool:
    """A tool that runs a program; its kind is that of ``nested``."""
    if nested is inner_sync:
        return Tool("ask", execute=lambda: inner_sync(pool))
    if nested is _items:

        async def items() -> Any:
            async for item in _items(pool):
                yield item

        return Tool("ask", execute=items)

    async def ask() -> int:
        return await nested(pool)

    return Tool("ask", execute=ask)


def together(pool: WorkerPool, nested: Any, js: str, count: int) -> list[Any]:
    async def scenario() -> list[Any]:
        runs = (run_code_mode(js, [sub_agent(pool, nested)], pool=pool, options=WAIT) for _ in range(count))
        return await asyncio.gather(*runs)

    return within(scenario())


def test_many_programs_whose_tools_run_programs_all_end(pool: WorkerPool):
    js = "const both = await Promise.all([tools.ask(), tools.ask()]); return both[0] + await tools.ask()"
    count = rounds(30, 100)
    assert together(pool, inner, js, count) == [2] * count
    assert pool.active == 0


@pytest.mark.parametrize("nested", [inner, *full_only(inner_sync, _in_a_thread, *OTHER_NESTED)])
def test_however_a_tool_runs_a_program_it_waits_for_nobody_around_it(nested: Any, pool: WorkerPool):
    assert together(pool, nested, "return await tools.ask()", 20) == [1] * 20


@pytest.mark.full
def test_programs_in_shares_end_too():
    async def scenario() -> list[int]:
        with WorkerPool(PoolOptions(max_workers=3)) as whole:
            shares = [whole.share(name, max_workers=2) for name in "ab"]
            other = {id(shares[0]): shares[1], id(shares[1]): shares[0]}
            runs = [
                run_code_mode("return await tools.ask()", [sub_agent(there, inner)], pool=here, options=WAIT)
                for number in range(60)
                for here in [shares[number % 2]]
                for there in [here if number % 3 else other[id(here)]]
            ]
            return await asyncio.gather(*runs)

    assert within(scenario()) == [1] * 60


@pytest.mark.full
def test_programs_in_two_pools_that_use_each_other_end():
    async def scenario() -> list[int]:
        with WorkerPool(PoolOptions(max_workers=1)) as one, WorkerPool(PoolOptions(max_workers=1)) as other:
            runs = [
                run_code_mode("return await tools.ask()", [sub_agent(there, inner)], pool=here, options=WAIT)
                for here, there in [(one, other), (other, one)] * 10
            ]
            return await asyncio.gather(*runs)

    assert within(scenario()) == [1] * 20


def test_programs_end_where_memory_sets_the_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(available_memory, "read_available_memory_bytes", lambda: 0)

    async def scenario() -> tuple[list[int], int]:
        most = 0
        with WorkerPool() as pool:

            async def ask() -> int:
                nonlocal most
                value = await inner(pool)
                most = max(most, pool.active)
                return value

            tools = [Tool("ask", execute=ask)]
            runs = (run_code_mode("return await tools.ask()", tools, pool=pool, options=WAIT) for _ in range(20))
            return await asyncio.gather(*runs), most

    values, most = within(scenario())
    assert values == [1] * 20
    assert most <= 1 + MAX_EXTRA_SLOTS


@pytest.mark.full
def test_sync_tools_have_threads_at_every_depth():
    """More tools than there are threads wait for programs that need one too."""

    async def scenario() -> list[Any]:
        with WorkerPool(PoolOptions(max_workers=4)) as pool:
            js = "return (await Promise.all(Array.from({ length: 32 }, () => tools.ask()))).length"
            tools = [sub_agent(pool, inner_sync)]
            return await asyncio.gather(*(run_code_mode(js, tools, pool=pool, options=WAIT) for _ in range(3)))

    assert within(scenario()) == [32] * 3


def down(pool: WorkerPool, levels: int, options: Any) -> Any:
    """Run a program whose tool runs a program, and so on; gives how many have run."""

    async def deeper() -> int:
        return await down(pool, levels - 1, options)

    js = "return 1 + await tools.deeper()" if levels else "return 1"
    return run_code_mode(js, [Tool("deeper", execute=deeper)], pool=pool, options=options)


@pytest.mark.parametrize("options", [WAIT, FAIL], ids=["wait", "fail"])
def test_programs_go_four_deep_beyond_the_maximum_and_no_deeper(options: Any):
    async def scenario() -> None:
        with WorkerPool(PoolOptions(max_workers=1)) as pool:
            assert await down(pool, MAX_EXTRA_SLOTS, options) == 1 + MAX_EXTRA_SLOTS
            with pytest.raises(Exception, match=r"more than 4 deep in nested calls") as caught:
                await down(pool, MAX_EXTRA_SLOTS + 1, options)
            assert type(caught.value) is CodeModeConcurrencyError
            assert (caught.value.details["max_workers"], caught.value.details["depth"]) == (1, 5)
            assert pool.active == 0

    within(scenario())


def test_where_there_is_room_programs_go_as_deep_as_they_like(pool: WorkerPool):
    assert within(down(pool, 6, FAIL)) == 7


def test_a_resume_inside_a_tool_waits_for_nobody():
    async def scenario() -> list[Any]:
        with WorkerPool(PoolOptions(max_workers=2)) as pool:
            pay = Tool("pay", execute=lambda: "paid", needs_approval=True)
            options = {**WAIT, "approval": {"mode": "interrupt"}}
            code_mode = create_code_mode_tool([pay], options, pool=pool)

            async def approve() -> Any:
                paused = await code_mode.execute({"js": "return await tools.pay()"})
                return await code_mode.resume(paused, {"approved": True})

            tools = [Tool("approve", execute=approve)]
            runs = (run_code_mode("return await tools.approve()", tools, pool=pool, options=WAIT) for _ in range(20))
            return await asyncio.gather(*runs)

    assert within(scenario()) == ["paid"] * 20


def test_what_a_call_left_running_is_no_part_of_it():
    depths: list[int] = []

    async def scenario() -> None:
        with WorkerPool(PoolOptions(max_workers=1)) as pool:
            go_on = asyncio.Event()
            left: list[asyncio.Task[int]] = []

            async def later() -> int:
                depths.append(lease.compute_nesting_depth())
                await go_on.wait()
                depths.append(lease.compute_nesting_depth())
                return await down(pool, MAX_EXTRA_SLOTS, WAIT)

            async def leave() -> None:
                left.append(asyncio.create_task(later()))
                await asyncio.sleep(0)

            await run_code_mode("await tools.leave()", [Tool("leave", execute=leave)], pool=pool)
            go_on.set()
            assert await left[0] == 1 + MAX_EXTRA_SLOTS

    within(scenario())
    assert depths == [1, 0]
    assert lease.compute_nesting_depth() == 0


def test_a_thread_of_its_own_counts_as_its_own():
    """Known limit: nothing tells whose it is."""
    seen: list[int] = []
    place = InvocationSlot()
    contextvars.copy_context().run(lambda: (place.make_current(), _note_depth(seen)))
    assert seen == [1, 0]


def _note_depth(seen: list[int]) -> None:
    seen.append(lease.compute_nesting_depth())
    thread = threading.Thread(target=lambda: seen.append(contextvars.Context().run(lease.compute_nesting_depth)))
    thread.start()
    thread.join(60)
