"""Threads for host work: they belong to shares, checks take turns and stop, and the interpreter can always end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from in_loop import in_loop
from pydantic import BaseModel, field_validator
from suite import full_only

from codemode import CodeModeTimeoutError, Tool, WorkerPool, run_code_mode
from codemode.host import steps, threads
from codemode.host.threads import HostThreads, InvocationThreads, run_in_thread_if_large_or_slow

TIMEOUT = 60
LIMITED = {"execution_policy": {"timeout_ms": 60_000}}
PATIENT = {"execution_policy": {"timeout_ms": 600_000}}


async def in_time(work):
    return await asyncio.wait_for(work, TIMEOUT)


def quick(pool: WorkerPool):
    tool = Tool("quick", execute=lambda _: "done")
    return run_code_mode("return await tools.quick()", [tool], pool=pool)


class Hung:
    """A sync tool that hangs until it is let go. ``begun`` counts the calls that hang, ``on_begun`` hears of each."""

    def __init__(self, calls: int, on_begun: Callable[[], None] = lambda: None) -> None:
        self.begun = threading.Semaphore(0)
        self.let_go = threading.Event()
        self.calls = calls
        self.on_begun = on_begun
        self.tool = Tool("hang", execute=self._hang)

    def _hang(self, _input: object) -> None:
        self.begun.release()
        self.on_begun()
        self.let_go.wait(TIMEOUT)

    async def all_begun(self) -> None:
        for _ in range(self.calls):
            assert await asyncio.to_thread(self.begun.acquire, timeout=TIMEOUT)


PROGRAM = "await Promise.all(Array.from({ length: 32 }, () => tools.hang()))"


@in_loop
async def test_hung_tools_of_one_share_leave_another_share_its_threads():
    hung = Hung(64)
    with WorkerPool({"max_workers": 6}) as pool:
        noisy, calm = pool.share("noisy", max_workers=3), pool.share("calm", max_workers=2)
        runs = [asyncio.create_task(run_code_mode(PROGRAM, [hung.tool], pool=noisy)) for _ in range(3)]
        try:
            await hung.all_begun()
            assert await in_time(quick(calm)) == "done"
        finally:
            hung.let_go.set()
            await in_time(asyncio.gather(*runs))


@in_loop
async def test_a_slot_stays_taken_while_its_thread_runs(passing_time):
    hung = Hung(1, lambda: passing_time.skip(61))
    with WorkerPool({"max_workers": 1, "on_saturation": "wait"}) as pool:
        with pytest.raises(CodeModeTimeoutError):
            await in_time(run_code_mode("await tools.hang()", [hung.tool], pool=pool, options=LIMITED))
        assert pool.active == 1
        waiting = asyncio.create_task(quick(pool))
        hung.let_go.set()
        assert await in_time(waiting) == "done"
        assert pool.active == 0


@in_loop
async def test_what_waits_for_a_thread_is_forgotten_with_its_invocation(passing_time):
    hung = Hung(64)
    begun: list[str] = []
    late = Tool("late", execute=lambda _: begun.append("late"))
    limited = {**LIMITED, "lifecycle": {"on_nested_tool_call": lambda _: passing_time.skip(61)}}
    with WorkerPool({"max_workers": 6}) as pool:
        runs = [asyncio.create_task(run_code_mode(PROGRAM, [hung.tool], pool=pool, options=PATIENT)) for _ in range(2)]
        try:
            await hung.all_begun()
            with pytest.raises(CodeModeTimeoutError):
                await in_time(run_code_mode("await tools.late()", [late], pool=pool, options=limited))
        finally:
            hung.let_go.set()
            await in_time(asyncio.gather(*runs))
        assert await in_time(quick(pool)) == "done"
    assert begun == []


def busy_until(event: threading.Event):
    """Return a check that goes on until the event is set: stoppable, and never done before."""

    def work() -> str:
        started = time.monotonic()
        while not event.is_set() and time.monotonic() - started < TIMEOUT:
            steps.count_steps()
        return "done"

    return work


@in_loop
async def test_endless_checks_of_one_share_leave_another_share_its_turn():
    end = threading.Event()
    noisy, calm = InvocationThreads(HostThreads()), InvocationThreads(HostThreads())
    checks = [asyncio.create_task(noisy.run_cpu_bound(busy_until(end))) for _ in range(4)]
    try:
        assert await in_time(calm.run_cpu_bound(lambda: "quick")) == "quick"
        assert not any(check.done() for check in checks)
    finally:
        end.set()
        assert await in_time(asyncio.gather(*checks)) == ["done"] * 4


@in_loop
async def test_a_check_stops_when_nobody_waits_for_it():
    stopped = threading.Event()
    begun = threading.Event()

    def work() -> None:
        begun.set()
        try:
            while True:
                steps.count_steps()
        finally:
            stopped.set()

    check = asyncio.create_task(run_in_thread_if_large_or_slow(1 << 20, work))
    assert await asyncio.to_thread(begun.wait, TIMEOUT)
    check.cancel()
    assert await asyncio.to_thread(stopped.wait, TIMEOUT)
    with pytest.raises(asyncio.CancelledError):
        await check


@in_loop
async def test_one_check_runs_at_a_time_however_many_shares_wait():
    running = threading.Semaphore(1)
    together: list[bool] = []

    def work() -> None:
        alone = running.acquire(blocking=False)
        together.append(not alone)
        for _ in range(1000):
            pass
        if alone:
            running.release()

    shares = [InvocationThreads(HostThreads()) for _ in range(8)]
    await in_time(asyncio.gather(*(share.run_cpu_bound(work) for share in shares for _ in range(8))))
    assert together == [False] * 64


@in_loop
async def test_an_invocation_that_asks_for_much_does_not_make_another_wait_for_all_of_it():
    share = HostThreads()
    greedy, modest = InvocationThreads(share), InvocationThreads(share)
    gate, order = threading.Event(), []

    def ordered(name: str):
        return lambda: order.append(name)

    first = asyncio.create_task(greedy.run_cpu_bound(lambda: gate.wait(TIMEOUT)))
    await asyncio.sleep(0)
    rest = [asyncio.create_task(greedy.run_cpu_bound(ordered("greedy"))) for _ in range(8)]
    await asyncio.sleep(0)
    other = asyncio.create_task(modest.run_cpu_bound(ordered("modest")))
    await asyncio.sleep(0)
    gate.set()
    await in_time(asyncio.gather(first, *rest, other))
    assert order.index("modest") <= 1


class Hanging:
    """A check that waits for something, takes no steps meanwhile, and says that it has begun."""

    def __init__(self) -> None:
        self.begun, self.end = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        self.end.wait(TIMEOUT)
        steps.count_steps(10_000)
        return "hung"


@pytest.fixture
def hung_soon(monkeypatch):
    """Take a check for one that hangs after a moment."""
    monkeypatch.setattr(threads, "HUNG_SECONDS", 0.5)


@pytest.mark.usefixtures("hung_soon")
@pytest.mark.parametrize("is_other_share", [True, *full_only(False)])
def test_a_check_that_hangs_is_passed_over(is_other_share):
    asyncio.run(pass_over(is_other_share=is_other_share))


async def pass_over(*, is_other_share: bool):
    hanging, share = Hanging(), HostThreads()
    calm = InvocationThreads(HostThreads() if is_other_share else share)
    hung = asyncio.create_task(InvocationThreads(share).run_cpu_bound(hanging))
    assert await asyncio.to_thread(hanging.begun.wait, TIMEOUT)
    try:
        assert await in_time(calm.run_cpu_bound(lambda: "quick")) == "quick"
        assert not hung.done()
    finally:
        hanging.end.set()
    assert await in_time(hung) == "hung"
    assert await in_time(calm.run_cpu_bound(lambda: "quick")) == "quick"
    assert share.checks._max_threads == 1


@pytest.mark.usefixtures("hung_soon")
@in_loop
async def test_a_check_that_was_passed_over_waits_for_its_turn_again():
    hanging, go_on = Hanging(), threading.Event()
    hung = asyncio.create_task(InvocationThreads(HostThreads()).run_cpu_bound(hanging))
    assert await asyncio.to_thread(hanging.begun.wait, TIMEOUT)
    begun = threading.Event()

    def busy() -> bool:
        begun.set()
        while not go_on.is_set():
            steps.count_steps()
        return True

    other = asyncio.create_task(InvocationThreads(HostThreads()).run_cpu_bound(busy))
    assert await asyncio.to_thread(begun.wait, TIMEOUT)
    hanging.end.set()
    go_on.set()
    assert await in_time(asyncio.gather(hung, other)) == ["hung", True]


@pytest.mark.usefixtures("hung_soon")
@in_loop
async def test_a_slot_stays_taken_while_a_check_hangs(passing_time):
    hanging = Hanging()

    class Slow(BaseModel):
        text: str

        @field_validator("text")
        @classmethod
        def wait(cls, value: str) -> str:
            hanging()
            return value

    tool = Tool("slow", execute=lambda _: 1, input_schema=Slow)
    js = "await tools.slow({ text: 'x'.repeat(100000) })"
    with WorkerPool({"max_workers": 1, "on_saturation": "wait"}) as pool:
        run = asyncio.create_task(run_code_mode(js, [tool], pool=pool, options=LIMITED))
        assert await asyncio.to_thread(hanging.begun.wait, TIMEOUT)
        passing_time.skip(61)
        with pytest.raises(CodeModeTimeoutError):
            await in_time(run)
        assert pool.active == 1
        waiting = asyncio.create_task(quick(pool))
        hanging.end.set()
        assert await in_time(waiting) == "done"


@in_loop
async def test_loop_a_small_value_whose_check_takes_many_steps_leaves_the_loop():
    threads: list[str] = []

    def work() -> int:
        threads.append(threading.current_thread().name)
        steps.count_steps(10_000)
        return 7

    assert await in_time(run_in_thread_if_large_or_slow(10, work)) == 7
    assert threads == [threading.current_thread().name, "codemode-check"]


HANGING_HOST = """
import asyncio, threading
from codemode import CodeModeTimeoutError, Tool, run_code_mode

async def main():
    tool = Tool("hang", execute=lambda _: threading.Event().wait())
    try:
        await run_code_mode("await tools.hang()", [tool], options={"execution_policy": {"timeout_ms": 200}})
    except CodeModeTimeoutError:
        print("timed out", flush=True)

asyncio.run(main())
"""


def test_a_hung_tool_does_not_keep_the_interpreter_from_ending():
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", HANGING_HOST], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "timed out", "")
