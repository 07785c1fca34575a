"""What becomes of spares, zygotes and a closed pool."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import pickle
import signal
from typing import Any

import pytest
from leftovers import await_state, children, descriptors, living_children
from pool_driver import Hold, PoolMaker, one, run, zygotes
from suite import full_only, rounds
from waiting import until

from codemode import (
    CodeModeTimeoutError,
    WorkerPool,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
    run_code_mode,
    run_code_mode_sync,
)
from codemode.errors import CodeModeConcurrencyError, CodeModeWorkerError
from codemode.workers.image import GUEST_RUNTIME, WorkerImage
from codemode.workers.zygote import Zygote

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.mark.parametrize("spare_workers", [1, *full_only(0, 3)])
def test_spares_are_refilled(make_pool: PoolMaker, spare_workers: int) -> None:
    before = children()
    pool = make_pool(spare_workers=spare_workers, programs_per_worker=1)
    for _ in range(3):
        assert one(pool) == 2
        assert len(pool.supply.inventory.spares) == spare_workers
    (zygote,) = zygotes(before)
    asyncio.run(until(lambda: len(living_children(zygote)) == spare_workers))


def test_a_worker_runs_one_program(make_pool: PoolMaker) -> None:
    pool = make_pool()
    program = "const before = globalThis.mark ?? null; globalThis.mark = 1; return before"
    assert [run_code_mode_sync(program, {}, pool=pool) for _ in range(4)] == [None] * 4


@pytest.mark.parametrize("number", [signal.SIGKILL, *full_only(signal.SIGSTOP)])
def test_spares_that_died_or_stopped_do_not_harm(make_pool: PoolMaker, number: signal.Signals) -> None:
    before = children()
    pool = make_pool()
    one(pool)
    (zygote,) = zygotes(before)
    for pid in living_children(zygote):
        with contextlib.suppress(ProcessLookupError):  # the worker that has just run is on its way out
            os.kill(pid, number)
        await_state(pid, "T" if number == signal.SIGSTOP else "Z")
    endings: list[Any] = []
    for number_of_run in range(4):
        # A stopped worker is not dead: it takes its invocation with it, once.
        may_be_late = number == signal.SIGSTOP and number_of_run < 2
        options = {"execution_policy": {"timeout_ms": 500 if may_be_late else 60_000}}
        try:
            endings.append(run_code_mode_sync("return 1", {}, options=options, pool=pool))
        except CodeModeTimeoutError as error:
            endings.append(error)
    assert endings[2:] == [1, 1]
    if number == signal.SIGKILL:
        assert endings[:2] == [1, 1]
        assert zygotes(before) == {zygote}


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGKILL, CodeModeWorkerError), (signal.SIGSTOP, CodeModeTimeoutError)]
)
def test_a_worker_that_is_killed_or_stopped_in_the_middle_of_a_run(
    make_pool: PoolMaker, passing_time: Any, number: signal.Signals, error: type[Exception]
) -> None:
    before = children()
    pool = make_pool(spare_workers=0)

    async def strike() -> None:
        (zygote,) = zygotes(before)
        (worker,) = living_children(zygote)
        os.kill(worker, number)
        if number == signal.SIGSTOP:
            passing_time.skip(61)

    options = {"execution_policy": {"timeout_ms": 60_000}}
    with pytest.raises(error) as caught:
        run_code_mode_sync("await tools.strike(); for (;;);", [strike], options=options, pool=pool)
    assert type(caught.value) is error
    assert pool.active == 0
    assert one(pool) == 2


@pytest.mark.parametrize(
    ("number", "spare_workers"),
    [(signal.SIGKILL, 2), *full_only((signal.SIGKILL, 0), (signal.SIGSTOP, 0), (signal.SIGSTOP, 2))],
)
def test_a_zygote_that_died_or_stopped_is_replaced(
    make_pool: PoolMaker, number: signal.Signals, spare_workers: int
) -> None:
    before = children()
    # A zygote that makes engines in between is given more time.
    pool = make_pool(spare_workers=spare_workers, programs_per_worker=1)
    one(pool)
    (zygote,) = zygotes(before)
    os.kill(zygote, number)
    if number == signal.SIGKILL:
        with contextlib.suppress(ChildProcessError):  # the pool may have seen to it already
            os.waitid(os.P_PID, zygote, os.WEXITED | os.WNOWAIT)
    assert [one(pool) for _ in range(4)] == [2] * 4
    # A stopped one is killed by a thread, when it has not told in its time what became of the last worker.
    asyncio.run(until(lambda: zygote not in zygotes(before)))
    assert len(zygotes(before)) == 1


@pytest.mark.full
def test_a_stopped_zygote_costs_many_waiting_invocations_one_replacement(make_pool: PoolMaker) -> None:
    before = children()
    started_sources: list[Zygote] = []

    def source() -> Zygote:
        started_sources.append(Zygote(WorkerImage.from_installed(GUEST_RUNTIME)))
        return started_sources[-1]

    pool = make_pool(source=source, max_workers=16)
    one(pool)
    (zygote,) = zygotes(before)
    os.kill(zygote, signal.SIGSTOP)

    async def main() -> list[Any]:
        return await asyncio.gather(*(run_code_mode("return 2", {}, pool=pool) for _ in range(8)))

    assert run(main) == [2] * 8
    assert len(started_sources) == 2


def test_a_retired_generation_lives_until_its_last_worker_is_done(
    make_pool: PoolMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codemode.workers.worker_generations._MAX_WORKERS_PER_SOURCE", 4)
    before = children()
    pool = make_pool(max_workers=4)

    async def main() -> None:
        hold = Hold()
        task = await hold.start(pool)
        (first,) = zygotes(before)
        for _ in range(12):
            assert await run_code_mode("return 1", {}, pool=pool) == 1
        await until(lambda: len(zygotes(before)) == 2)
        assert first in zygotes(before)
        hold.release.set()
        assert await task == "released"
        await until(lambda: first not in zygotes(before) and len(zygotes(before)) == 1)

    run(main)


@pytest.mark.parametrize("start_method", ["fork", "exec"])
def test_close_ends_every_process_and_the_pool(make_pool: PoolMaker, start_method: str) -> None:
    before = children()
    pool = make_pool(start_method=start_method)

    async def main() -> None:
        hold = Hold()
        task = await hold.start(pool)
        pool.close()
        with pytest.raises(CodeModeWorkerError):
            await task
        with pytest.raises(CodeModeWorkerError, match="closed"):
            await run_code_mode("return 1", {}, pool=pool)
        pool.close()

    run(main)
    assert pool.active == 0
    assert children() == before


def test_descriptors_and_processes_stay_constant(make_pool: PoolMaker) -> None:
    pool = make_pool(programs_per_worker=1)  # how many kept ones wait differs from time to time

    async def main() -> None:
        for _ in range(20):
            await run_code_mode("return 1", {}, pool=pool)
        opened, processes = len(descriptors()), len(children())
        for _ in range(rounds(60, 300)):
            assert await run_code_mode("return 1", {}, pool=pool) == 1
        # The pidfds of the two spares are taken from the zygote late.
        assert abs(len(descriptors()) - opened) <= 2
        assert len(children()) == processes

    run(main)


def test_leaving_the_block_closes_the_pool(run):
    with WorkerPool({"max_workers": 1, "spare_workers": 0}) as pool:
        assert run("return 1", pool=pool) == 1
    with pytest.raises(CodeModeWorkerError, match="closed"):
        run("return 1", pool=pool)


def test_a_share_that_was_closed_is_another_the_next_time(make_pool: PoolMaker) -> None:
    pool = make_pool()
    first = pool.share("nightly", max_workers=1)
    assert one(first) == 2
    first.close()
    with pytest.raises(CodeModeWorkerError, match="the share 'nightly' of the worker pool is closed"):
        one(first)
    again = pool.share("nightly", max_workers=2)
    assert one(again) == 2
    assert pool.share("nightly", max_workers=2) is again


@pytest.mark.parametrize(
    "create", [create_code_mode_tool, create_code_call_tools, create_modules_tool, create_exec_wait_tools]
)
@pytest.mark.parametrize("closed", ["pool", "share", "pool of the share"])
def test_nothing_is_made_with_a_pool_that_is_closed(make_pool: PoolMaker, create: Any, closed: str) -> None:
    pool = make_pool()
    given = pool if closed == "pool" else pool.share("nightly", max_workers=1)
    create([], pool=given)
    (given if closed == "share" else pool).close()
    assert given.is_closed
    with pytest.raises(ValueError, match=r"pool is closed: .* WorkerPool\(options\) or a share"):
        create([], pool=given)


def test_who_finds_no_room_is_told_where_and_why(make_pool: PoolMaker) -> None:
    pool = make_pool(max_workers=2)

    async def within_a_run(where: WorkerPool) -> str:
        async def inner() -> str:
            with pytest.raises(CodeModeConcurrencyError) as caught:
                await asyncio.create_task(run_code_mode("return 1", [], pool=where), context=contextvars.Context())
            return str(caught.value)

        return await run_code_mode("return await tools.inner()", [inner], pool=where)

    share = pool.share("a", max_workers=1)
    said = asyncio.run(within_a_run(share))
    assert said == """all 1 code mode workers of the share 'a' are busy, and on_saturation is "fail\""""
    assert pool.active == 0


def test_what_runs_in_a_pool_that_is_closed_is_told_so(make_pool: PoolMaker) -> None:
    pool = make_pool()

    async def close() -> None:
        await pool.aclose()
        await asyncio.Event().wait()

    with pytest.raises(CodeModeWorkerError, match="the worker ended without a result: its pool was closed"):
        run_code_mode_sync("return await tools.close()", [close], pool=pool)


@pytest.mark.parametrize("is_share", [False, True])
def test_a_pool_is_of_one_process(make_pool: PoolMaker, is_share: bool) -> None:
    pool = make_pool()
    with pytest.raises(TypeError, match="a WorkerPool belongs to one process"):
        pickle.dumps(pool.share("a", max_workers=1) if is_share else pool)
