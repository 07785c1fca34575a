"""No part of a run blocks the event loop: the pool's start and refill, kills and closes, pauses and resumes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import failure
from suite import full_only
from waiting import until, within

from codemode import Tool, WorkerPool, run_code_mode
from codemode.workers.worker_generations import RetirableWorkerSource
from codemode.workers.worker_inventory import WorkerInventory

HOST = Path(__file__).parents[1] / "support" / "blocking_host.py"
# Those of one process come to other parts of the package each, so that each has its own first imports.
SCENARIOS = [
    "first_run,many_runs,timeouts,cancelled,workers_that_die",
    *full_only(
        "paused,sealed,traced",
        "paused_elsewhere",
        "with_schemas,fetching",
        "by_exec",
        "without_spares,closed_on_the_loop,shares_and_waiting",
    ),
]


@pytest.mark.skipif(sys.platform != "linux", reason="a zygote needs Linux")
@pytest.mark.parametrize("scenarios", SCENARIOS)
def test_nothing_blocks_the_event_loop(scenarios: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(HOST), scenarios, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr.strip()) == (0, "ok", "")


def test_a_worker_that_comes_when_nobody_wants_it_any_more_is_closed(monkeypatch: pytest.MonkeyPatch):
    """The caller is cancelled while a thread starts its worker."""

    async def scenario() -> None:
        starting, go_on = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        spawn = RetirableWorkerSource.spawn

        def late(generation: RetirableWorkerSource, *, warm_up: bool) -> Any:
            loop.call_soon_threadsafe(starting.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(30)
            return spawn(generation, warm_up=warm_up)

        monkeypatch.setattr(RetirableWorkerSource, "spawn", late)
        async with WorkerPool({"spare_workers": 0}) as pool:
            task = asyncio.create_task(run_code_mode("return 1", [], pool=pool))
            await asyncio.wait_for(starting.wait(), 60)
            task.cancel()
            await asyncio.wait([task])
            assert pool.active == 0
            go_on.set()
            stock = pool.supply.inventory
            await until(lambda: stock._current_source and stock._current_source._spawned_count and not stock.busy)
            monkeypatch.undo()
            assert await run_code_mode("return 2", [], pool=pool) == 2

    within(scenario())


def test_first_runs_at_once_start_one_source(monkeypatch: pytest.MonkeyPatch):
    made: list[int] = []
    make = WorkerInventory._spawn_worker

    def counted(stock: WorkerInventory) -> Any:
        made.append(0 if stock._current_source else 1)
        return make(stock)

    monkeypatch.setattr(WorkerInventory, "_spawn_worker", counted)

    async def scenario(spares: int) -> None:
        async with WorkerPool({"spare_workers": spares, "max_workers": 16}) as pool:
            assert await asyncio.gather(*(run_code_mode("return 1", [], pool=pool) for _ in range(16))) == [1] * 16

    for spares in (0, 2):
        made.clear()
        within(scenario(spares))
        assert sum(made) == 1


@pytest.mark.parametrize("schema", [asyncio.Event, list[asyncio.Event]])
def test_what_the_host_raises_while_a_frame_is_read_ends_the_run(schema: Any):
    """It used to be logged by the event loop, and the program to wait until its time was over."""
    tool = Tool("broken", execute=lambda value: value, input_schema=schema)
    with pytest.raises(ValueError, match="input_schema of tool 'broken'"):
        failure("return await tools.broken({ a: 1 })", [tool], timeout_ms=60_000)
