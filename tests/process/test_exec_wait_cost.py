"""What a program costs the host, counted in calls of Python and not in time: it follows from what it does."""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import weakref
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import pytest
from suite import full_only

from codemode import ExecWaitTools, Tool, WorkerPool, create_code_mode_tool, create_exec_wait_tools
from codemode.surfaces.exec_wait import run_registry as runs_of_a_pair
from codemode.surfaces.exec_wait.program_run import ProgramRun
from codemode.workers.process import wait_until_readable

YIELDING = "await yield_control(); return 1"


async def spare_is_ready(pool: WorkerPool) -> None:
    pool.supply.refill_spares()
    await pool.run_in_start_thread(lambda: None)  # behind what starts one, where that may take a while
    assert wait_until_readable(pool.supply.inventory.spares[0].process.channel.fileno(), 60_000)


async def calls_of(work: Callable[[], Awaitable[Any]], times: int = 9, pool: WorkerPool | None = None) -> float:
    """Return how many functions of Python the host enters for one run, on this thread; a median, for workers vary."""
    counts: list[int] = []
    for _ in range(times + 5):
        count = 0

        def entered(_frame: FrameType, event: str, _given: Any) -> None:
            nonlocal count
            count += event == "call"

        await asyncio.sleep(0.005)  # a spare worker is ready
        if pool is not None:
            await spare_is_ready(pool)
        sys.setprofile(entered)
        try:
            await work()
        finally:
            sys.setprofile(None)
        counts.append(count)
    return statistics.median(counts[5:])


def named(count: int) -> list[Tool]:
    return [
        Tool(f"tool-{at}", execute=lambda value, _: value, description=f"Do what {at} says.") for at in range(count)
    ]


def run(pair: ExecWaitTools, code: str = "return 1") -> Awaitable[Any]:
    return pair.exec.execute({"code": code})


def test_nothing_is_done_for_each_tool_of_a_catalog_when_a_program_runs(within, make_pool):
    pool = make_pool()
    few, many = (create_exec_wait_tools(named(count), pool=pool) for count in (1, 1_002))

    async def main():
        await run(few)  # a first run is what starts workers
        return [await calls_of(lambda pair=pair: run(pair), pool=pool) for pair in (few, many)]

    of_few, of_many = within(main())
    assert abs(of_many - of_few) < 60, (of_few, of_many)


def test_a_program_that_does_not_rest_costs_little_more_than_in_code_mode(within, make_pool):
    pool = make_pool()
    tools = [Tool("echo", execute=lambda value, _: value)]
    pair, code_mode = create_exec_wait_tools(tools, pool=pool), create_code_mode_tool(tools, pool=pool)

    async def main():
        await run(pair)  # a first run is what starts workers
        by_pair = await calls_of(lambda: run(pair), pool=pool)
        return by_pair, await calls_of(lambda: code_mode.execute({"js": "return 1"}), pool=pool)

    by_pair, by_code_mode = within(main())
    assert by_pair < by_code_mode + 124, (by_pair, by_code_mode)


def test_a_program_pays_for_no_feature_that_it_does_not_use(within, make_pool):
    """With 3.11 there are some 220, asyncio's own among them; a feature must not cost them who ask for none of it."""
    pool = make_pool()
    code_mode = create_code_mode_tool([Tool("echo", execute=lambda value, _: value)], pool=pool)

    async def main():
        await code_mode.execute({"js": "return 1"})  # a first run is what starts workers
        return await calls_of(lambda: code_mode.execute({"js": "return 1"}), pool=pool)

    count = within(main())
    assert count < 250, count


@pytest.mark.parametrize("asks", ["rest", *full_only("wait")])
def test_runs_that_have_ended_cost_those_that_come_nothing(within, make_pool, asks):
    pair = create_exec_wait_tools([], {"maxWaitingRuns": 5_000}, pool=make_pool())
    runs = pair._runner.runs

    def end_some(count: int) -> None:
        for _ in range(count):
            one = runs.reserve_run_or_raise("", "")
            one.suspension_count = 1
            runs.end(one, "completed")

    async def once():
        rested = await run(pair, YIELDING)
        if asks == "wait":
            await pair.wait.execute({"runId": rested["runId"]})
        else:
            await pair.abort(run_id=rested["runId"])

    async def main():
        before = await calls_of(once)
        end_some(3_000)
        after = await calls_of(once)
        await pair.aclose()
        return before, after

    before, after = within(main())
    assert abs(after - before) < 400, (before, after)


def test_of_a_run_that_has_ended_nothing_is_kept_but_what_became_of_it(within, make_pool):
    pair = create_exec_wait_tools([], {"maxWarmRuns": 0}, pool=make_pool())
    code = f"const text = {'x' * 5_000!r}; {YIELDING}"

    async def main():
        rested = await run(pair, code)
        one = weakref.ref(pair._runner.runs.find(rested["runId"]))
        ended = await pair.wait.execute({"runId": rested["runId"]})
        again = await pair.wait.execute({"runId": rested["runId"]})
        await asyncio.sleep(0)
        gc.collect()
        return ended, again, one()

    ended, again, one = within(main())
    assert (ended["value"], again["code"], one) == (1, "invalid_input", None)
    assert "its result was returned" in again["error"]


def test_only_so_many_runs_that_have_ended_are_remembered(within, make_pool, monkeypatch):
    monkeypatch.setattr(runs_of_a_pair, "MAX_ENDED_RUNS", 3)
    pair = create_exec_wait_tools([], pool=make_pool())
    runs = pair._runner.runs

    async def main():
        ended: list[ProgramRun] = []
        for _ in range(5):
            one = runs.reserve_run_or_raise("", "")
            one.suspension_count = 1
            runs.end(one, "completed")
            ended.append(one)
        return [runs.find(one.run_id) is not None for one in ended]

    assert within(main()) == [False, False, True, True, True]
