"""The pool: who may run, in what order, and what becomes of spares, zygotes and a closed pool."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leftovers import PATIENCE_SECONDS, await_state, children, descriptors, living_children, nothing_left
from waiting import until, within

from codemode import (
    CodeModeConcurrencyError,
    CodeModeTimeoutError,
    CodeModeWorkerError,
    WorkerPool,
    run_code_mode,
    run_code_mode_sync,
    set_max_workers,
)
from codemode.workers import pool as pool_module
from codemode.workers import supply as supply_module
from codemode.workers.admission import AvailableMemory, memory_based_limit
from codemode.workers.image import WorkerImage
from codemode.workers.isolation import LAYERS, LayerState
from codemode.workers.kernel import KERNEL
from codemode.workers.zygote import Zygote

PoolMaker = Callable[..., WorkerPool]
_MEMORY = 64 << 20


@pytest.fixture
def make_pool() -> Iterator[PoolMaker]:
    """Make pools that are closed at the end, after which nothing of theirs may be left."""
    pools: list[WorkerPool] = []

    def make(**settings: Any) -> WorkerPool:
        source = settings.pop("source", None)
        pools.append(WorkerPool(settings, source=source))
        return pools[-1]

    with nothing_left():
        yield make
        for pool in pools:
            pool.close()


class Hold:
    """A tool that stays in a call until it is released."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()

    async def hold(self) -> str:
        self.entered.set()
        await self.release.wait()
        return "released"

    async def start(self, pool: WorkerPool) -> asyncio.Task[Any]:
        """Begin an invocation of `pool` and return once it is inside the call."""
        work = run_code_mode("return await tools.hold({})", {"hold": self.hold}, pool=pool)
        task = asyncio.create_task(work)
        await asyncio.wait_for(self.entered.wait(), PATIENCE_SECONDS)
        return task


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run an async test within bounded time."""
    return within(main())


def one(pool: WorkerPool) -> Any:
    """One small invocation."""
    return run_code_mode_sync("return 1 + 1", {}, pool=pool)


def zygotes(before: set[int]) -> set[int]:
    return children() - before


def process_status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


# --- admission ---


@given(st.integers(0, 64), st.integers(1, 1 << 40), st.integers(0, 1 << 45))
def test_memory_based_limit_is_between_one_and_thirty_two(active: int, limit: int, available: int) -> None:
    assert 1 <= memory_based_limit(active, limit, available) <= 32
    assert memory_based_limit(active, limit, available) <= memory_based_limit(active, limit, available + limit)


def test_memory_based_limit_counts_one_heap_and_48_mib_per_worker() -> None:
    per_worker = _MEMORY + (48 << 20)
    assert memory_based_limit(0, _MEMORY, 3 * per_worker) == 3
    assert memory_based_limit(2, _MEMORY, 3 * per_worker - 1) == 4


def test_available_memory_is_read_and_kept_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    available = AvailableMemory()
    first = available()
    assert 1 << 20 < first < 1 << 50
    monkeypatch.setattr("codemode.workers.admission._read_available_bytes", lambda: 7)
    assert available() == first


def test_default_limit_follows_memory(make_pool: PoolMaker) -> None:
    pool = make_pool()
    pool._available_memory = lambda: 0  # type: ignore[assignment]

    async def main() -> None:
        hold = Hold()
        task = await hold.start(pool)
        with pytest.raises(CodeModeConcurrencyError) as refused:
            await run_code_mode("return 1", {}, pool=pool)
        hold.release.set()
        assert await task == "released"
        assert refused.value.details == {"max_workers": 1}

    run(main)


def test_full_pool_refuses_at_once(make_pool: PoolMaker) -> None:
    pool = make_pool(max_workers=2)

    async def main() -> None:
        holds = [Hold(), Hold()]
        tasks = [await hold.start(pool) for hold in holds]
        assert pool.active == 2
        started = time.monotonic()
        with pytest.raises(CodeModeConcurrencyError) as refused:
            await run_code_mode("return 1", {}, pool=pool)
        assert time.monotonic() - started < 1
        assert refused.value.code == "CODE_MODE_CONCURRENCY_LIMIT"
        assert refused.value.details == {"max_workers": 2}
        for hold in holds:
            hold.release.set()
        assert await asyncio.gather(*tasks) == ["released", "released"]
        assert pool.active == 0
        assert await run_code_mode("return 1", {}, pool=pool) == 1

    run(main)


def test_set_max_workers_holds_for_pools_without_a_cap_of_their_own(make_pool: PoolMaker) -> None:
    free, capped = make_pool(), make_pool(max_workers=2)

    async def main() -> None:
        holds = [Hold(), Hold()]
        tasks = [await holds[0].start(free), await holds[1].start(capped)]
        with pytest.raises(CodeModeConcurrencyError):
            await run_code_mode("return 1", {}, pool=free)
        assert await run_code_mode("return 1", {}, pool=capped) == 1
        for hold in holds:
            hold.release.set()
        await asyncio.gather(*tasks)

    set_max_workers(1)
    try:
        run(main)
    finally:
        set_max_workers(None)


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "2"])
def test_set_max_workers_refuses_nonsense(count: Any) -> None:
    with pytest.raises(ValueError, match="max_workers"):
        set_max_workers(count)


def test_waiting_is_served_in_order_of_arrival_and_cancelled_waiters_leave_at_once(make_pool: PoolMaker) -> None:
    pool = make_pool(max_workers=1, on_saturation="wait")

    async def main() -> None:
        hold, served = Hold(), list[int]()
        tools = {"mark": lambda number: served.append(number)}
        first = await hold.start(pool)
        tasks = [
            asyncio.create_task(run_code_mode(f"await tools.mark({{number: {number}}})", tools, pool=pool))
            for number in range(8)
        ]
        await until(lambda: len(pool._admission._waiting) == 8)
        for number in (0, 3, 7):
            tasks[number].cancel()
        await asyncio.wait_for(asyncio.wait([tasks[number] for number in (0, 3, 7)]), 1)
        assert all(tasks[number].cancelled() for number in (0, 3, 7))
        assert not first.done()
        hold.release.set()
        await asyncio.gather(first, *(task for task in tasks if not task.cancelled()))
        assert served == [1, 2, 4, 5, 6]
        assert pool.active == 0

    run(main)


def test_waiting_ends_with_the_concurrency_error_after_its_time(make_pool: PoolMaker) -> None:
    pool = make_pool(max_workers=1, on_saturation="wait", wait_timeout_ms=50)

    async def main() -> None:
        hold = Hold()
        task = await hold.start(pool)
        with pytest.raises(CodeModeConcurrencyError, match="after waiting 50 ms") as refused:
            await asyncio.wait_for(run_code_mode("return 1", {}, pool=pool), 5)
        assert refused.value.details == {"max_workers": 1}
        hold.release.set()
        await task
        assert await run_code_mode("return 1", {}, pool=pool) == 1

    run(main)


def test_waiters_of_several_threads_share_one_queue(make_pool: PoolMaker) -> None:
    pool = make_pool(max_workers=2, on_saturation="wait")
    results: list[int] = []

    def work(number: int) -> None:
        async def main() -> list[int]:
            return await asyncio.gather(*(run_code_mode(f"return {number}", {}, pool=pool) for _ in range(5)))

        results.extend(run(main))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE_SECONDS)
    assert sorted(results) == [number for number in range(6) for _ in range(5)]
    assert pool.active == 0


def test_a_waiter_whose_loop_is_gone_holds_up_nobody(make_pool: PoolMaker) -> None:
    pool = make_pool(max_workers=1, on_saturation="wait")
    abandoned = asyncio.new_event_loop()

    async def main() -> None:
        hold = Hold()
        task = await hold.start(pool)
        waiting = pool._admission.enter(_MEMORY, None)
        coroutine = abandoned.create_task(waiting)
        await asyncio.to_thread(lambda: (abandoned.call_soon(abandoned.stop), abandoned.run_forever()))
        assert len(pool._admission._waiting) == 1
        coroutine._log_destroy_pending = False  # type: ignore[attr-defined]
        abandoned.close()
        hold.release.set()
        await task
        assert await run_code_mode("return 1", {}, pool=pool) == 1

    run(main)


# --- processes ---


def test_nothing_starts_before_the_first_invocation(make_pool: PoolMaker) -> None:
    before = children()
    pool = make_pool()
    assert children() == before
    assert pool.isolation is None
    assert one(pool) == 2
    assert len(zygotes(before)) == 1


def test_import_and_making_a_tool_start_nothing() -> None:
    tool = "codemode.create_code_mode_tool({'f': lambda x: x}).description"
    script = f"import codemode, os; {tool}; print(open('/proc/self/task/%s/children' % os.getpid()).read().split())"
    outcome = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert outcome.stdout.strip() == "[]"


_FIRST_RUN = """
import sys
from codemode import create_code_mode_tool
from codemode.workers import supply
loaded = []

class Watched(supply.Zygote):
    def __init__(self, *given, **named):
        heavy = ("asyncio", "codemode.run.execution", "codemode.fetch.fetches")
        loaded.append([name for name in heavy if name in sys.modules])
        super().__init__(*given, **named)

supply.Zygote = Watched
tool = create_code_mode_tool({})
before = (len(loaded), "asyncio" in sys.modules)
print(tool.execute_sync({"js": "return 1"}), before, loaded, "codemode.fetch.fetches" in sys.modules)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a zygote needs Linux")
def test_the_first_worker_starts_before_what_runs_its_program_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", _FIRST_RUN], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "1 (0, False) [[]] False"


def test_start_makes_the_first_spare_and_no_more(make_pool: PoolMaker) -> None:
    before = children()
    pool = make_pool(spare_workers=2)
    pool.start()
    assert len(zygotes(before)) == 1
    assert "1 spare" in repr(pool)
    pool.start()
    assert "1 spare" in repr(pool)
    assert run_code_mode_sync("return 1", {}, pool=pool) == 1


def test_start_of_a_share_starts_the_whole(make_pool: PoolMaker) -> None:
    pool = make_pool(spare_workers=1)
    share = pool.share("tenant", max_workers=1)
    share.start()
    assert "1 spare" in repr(pool)
    assert "0 spare" in repr(share)


def test_wrong_options_start_nothing(make_pool: PoolMaker) -> None:
    before = children()
    for options in ({"fetch_policy": {"allowed_origins": ["no origin"]}}, {"execution_policy": {"timeout_ms": 0}}):
        with pytest.raises(ValueError, match=r"allowed_origins|timeout_ms"):
            run_code_mode_sync("return 1", {}, options=options, pool=make_pool())
    assert children() == before


def test_start_leaves_failures_to_acquire_and_a_closed_pool_closed(make_pool: PoolMaker) -> None:
    def absent() -> Any:
        raise CodeModeWorkerError("no engine")

    broken = make_pool(source=absent)
    broken.start()
    with pytest.raises(CodeModeWorkerError, match="no engine"):
        run_code_mode_sync("return 1", {}, pool=broken)
    before = children()
    closed = make_pool()
    closed.close()
    closed.start()
    assert children() == before


def test_default_pool_is_one_for_the_process() -> None:
    found: list[WorkerPool] = []
    threads = [threading.Thread(target=lambda: found.append(pool_module.default_pool())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert len(found) == 4
    assert len(set(map(id, found))) == 1


@pytest.mark.parametrize("spare_workers", [0, 1, 3])
def test_spares_are_refilled(make_pool: PoolMaker, spare_workers: int) -> None:
    before = children()
    pool = make_pool(spare_workers=spare_workers)
    for _ in range(3):
        assert one(pool) == 2
        assert len(pool.supply.stock.spares) == spare_workers
    (zygote,) = zygotes(before)
    asyncio.run(until(lambda: len(living_children(zygote)) == spare_workers))


def test_a_worker_runs_one_program(make_pool: PoolMaker) -> None:
    pool = make_pool()
    program = "const before = globalThis.mark ?? null; globalThis.mark = 1; return before"
    assert [run_code_mode_sync(program, {}, pool=pool) for _ in range(4)] == [None] * 4


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_spares_that_died_or_stopped_do_not_harm(make_pool: PoolMaker, number: signal.Signals) -> None:
    before = children()
    pool = make_pool()
    one(pool)
    (zygote,) = zygotes(before)
    for pid in living_children(zygote):
        with contextlib.suppress(ProcessLookupError):  # the worker that has just run is on its way out
            os.kill(pid, number)
        await_state(pid, "T" if number == signal.SIGSTOP else "Z")
    options = {"execution_policy": {"timeout_ms": 500}}
    endings: list[Any] = []
    for _ in range(4):
        try:
            endings.append(run_code_mode_sync("return 1", {}, options=options, pool=pool))
        except CodeModeTimeoutError as error:
            endings.append(error)
    # A stopped worker is not dead: it takes its invocation with it, once.
    assert endings[2:] == [1, 1]
    if number == signal.SIGKILL:
        assert endings[:2] == [1, 1]
        assert zygotes(before) == {zygote}


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGKILL, CodeModeWorkerError), (signal.SIGSTOP, CodeModeTimeoutError)]
)
def test_a_worker_that_is_killed_or_stopped_in_the_middle_of_a_run(
    make_pool: PoolMaker, number: signal.Signals, error: type[Exception]
) -> None:
    before = children()
    pool = make_pool(spare_workers=0)

    async def strike() -> None:
        (zygote,) = zygotes(before)
        (worker,) = living_children(zygote)
        os.kill(worker, number)

    options = {"execution_policy": {"timeout_ms": 500}}
    with pytest.raises(error) as caught:
        run_code_mode_sync("await tools.strike(); for (;;);", [strike], options=options, pool=pool)
    assert type(caught.value) is error
    assert pool.active == 0
    assert one(pool) == 2


@pytest.mark.parametrize("spare_workers", [0, 2])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_zygote_that_died_or_stopped_is_replaced(
    make_pool: PoolMaker, number: signal.Signals, spare_workers: int
) -> None:
    before = children()
    pool = make_pool(spare_workers=spare_workers)
    one(pool)
    (zygote,) = zygotes(before)
    os.kill(zygote, number)
    if number == signal.SIGKILL:
        os.waitid(os.P_PID, zygote, os.WEXITED | os.WNOWAIT)
    started = time.monotonic()
    assert [one(pool) for _ in range(4)] == [2] * 4
    assert time.monotonic() - started < 4
    # A stopped one is killed by a thread, when it has not told in its time what became of the last worker.
    asyncio.run(until(lambda: zygote not in zygotes(before)))
    assert len(zygotes(before)) == 1


def test_a_stopped_zygote_costs_many_waiting_invocations_one_replacement(make_pool: PoolMaker) -> None:
    before = children()
    started_sources: list[Zygote] = []

    def source() -> Zygote:
        started_sources.append(Zygote(WorkerImage.installed(KERNEL)))
        return started_sources[-1]

    pool = make_pool(source=source, max_workers=16)
    one(pool)
    (zygote,) = zygotes(before)
    os.kill(zygote, signal.SIGSTOP)

    async def main() -> list[Any]:
        return await asyncio.gather(*(run_code_mode("return 2", {}, pool=pool) for _ in range(8)))

    started = time.monotonic()
    assert run(main) == [2] * 8
    assert time.monotonic() - started < 6
    assert len(started_sources) == 2


def test_a_retired_generation_lives_until_its_last_worker_is_done(
    make_pool: PoolMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codemode.workers.generations._WORKERS_PER_SOURCE", 4)
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


@pytest.mark.parametrize("start_method", ["fork", "exec"])
def test_start_methods(make_pool: PoolMaker, start_method: str) -> None:
    pool = make_pool(start_method=start_method)

    async def double(number: int) -> int:
        return number * 2

    for number in range(4):
        program = f"return await tools.double({{number: {number}}})"
        assert run_code_mode_sync(program, {"double": double}, pool=pool) == 2 * number


def test_exec_workers_are_killed_when_the_program_does_not_end(make_pool: PoolMaker) -> None:
    pool = make_pool(start_method="exec")
    with pytest.raises(CodeModeTimeoutError):
        run_code_mode_sync("for (;;);", {}, options={"execution_policy": {"timeout_ms": 200}}, pool=pool)
    assert one(pool) == 2


def test_isolation_report_names_every_layer_and_tells_the_truth(make_pool: PoolMaker) -> None:
    before = children()
    pool = make_pool(spare_workers=0)

    async def main() -> None:
        hold = Hold()
        task = await hold.start(pool)
        report = pool.isolation
        assert report is not None
        assert [layer.name for layer in report.layers] == list(LAYERS)
        (zygote,) = zygotes(before)
        (worker,) = living_children(zygote)
        status = process_status(worker)
        in_force = {layer.name for layer in report.layers if layer.state is LayerState.IN_FORCE}
        assert ("seccomp" in in_force) == (status["Seccomp"] == "2")
        assert ("no-new-privs" in in_force) == (status["NoNewPrivs"] == "1")
        assert "uid-drop" not in in_force or status["Uid"].split()[0] != "0"
        if os.geteuid() == 0:
            assert ("one-descriptor" in in_force) == (list(descriptors(worker)) == ["3"])
        hold.release.set()
        await task

    run(main)


def zygote_without(*layers: str, ask_worker: bool = True) -> type[Zygote]:
    """Zygotes in an environment that refuses some layers; with `ask_worker` off only the host can notice."""

    class Crippled(Zygote):
        def __init__(self, image: WorkerImage, *, isolation_required: bool) -> None:
            super().__init__(image, isolation_required=isolation_required and ask_worker, skip_layers=layers)

    return Crippled


@pytest.mark.parametrize("ask_worker", [True, False])
def test_required_isolation_refuses_a_missing_layer(
    make_pool: PoolMaker, monkeypatch: pytest.MonkeyPatch, *, ask_worker: bool
) -> None:
    monkeypatch.setattr(supply_module, "Zygote", zygote_without("seccomp", ask_worker=ask_worker))
    pool = make_pool(isolation="required")
    for _ in range(2):
        with pytest.raises(CodeModeWorkerError, match="seccomp"):
            one(pool)
    assert pool.active == 0


def test_required_isolation_is_met_here(make_pool: PoolMaker) -> None:
    assert one(make_pool(isolation="required")) == 2


def test_a_missing_layer_is_reported_and_still_works(make_pool: PoolMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supply_module, "Zygote", zygote_without("seccomp", "landlock"))
    pool = make_pool()
    assert one(pool) == 2
    assert pool.isolation is not None
    assert pool.isolation["seccomp"].state is LayerState.REFUSED
    assert pool.isolation["landlock"].state is LayerState.REFUSED
    assert pool.isolation["rlimits"].state is LayerState.IN_FORCE


def test_descriptors_and_processes_stay_constant(make_pool: PoolMaker) -> None:
    pool = make_pool()

    async def main() -> None:
        for _ in range(20):
            await run_code_mode("return 1", {}, pool=pool)
        opened, processes = len(descriptors()), len(children())
        for _ in range(300):
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
