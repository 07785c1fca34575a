"""Soak: many invocations, one after the other, and what the host has grown by.

``python -m tests.soak.soak [invocations] [fork|exec] [programs of a worker]`` prints the figures, and fails when one is
over its bound.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.chaos import keeping
from tests.support.leftovers import PATIENCE_SECONDS, children, descriptors, nothing_left

from codemode import CodeModeError, ContinuationOptions, Interrupt, Tool, WorkerPool
from codemode import create_code_mode_tool as create
from codemode.stores import MemoryResumeGuard
from codemode.workers.worker_generations import PooledWorker

MOST_GROWTH_BYTES = 5 << 20
MOST_SLOWER = 1.5
WINDOW = 1000
# The pidfds of the two spares are taken from the zygote late, and a late death may hold a descriptor for a moment.
DESCRIPTORS_MAY_VARY_BY = 2
# Of a worker that waits for another program: channel, pidfd, and where the system tells of its memory.
DESCRIPTORS_OF_KEPT = 3
MAX_WORKERS = 4


@dataclass
class Figures:
    """What was measured. Memory is a resident set in bytes, the host's or the largest worker's; a latency milliseconds.

    Descriptors and processes are those beside the workers that wait for another program, of which there are ``kept``.
    """

    latencies_ms: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    worker_memory: int = 0

    @property
    def growth_bytes(self) -> int:
        """From the first sample, after the warm-up, to the last."""
        return self.memory[-1] - self.memory[0]

    def p99_ms(self, first: int, last: int) -> float:
        """The 99th percentile of some of the invocations."""
        some = sorted(self.latencies_ms[first:last])
        return some[int(0.99 * (len(some) - 1))]

    def sample(self, pool: WorkerPool, waiting: list[PooledWorker]) -> None:
        """Look at the host now, while these workers wait for another program."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        self.memory.append(pages * os.sysconf("SC_PAGE_SIZE"))
        self.descriptors.append(len(descriptors()) - DESCRIPTORS_OF_KEPT * len(waiting))
        own = waiting if pool.options.start_method == "exec" else ()  # the others are the zygote's
        self.processes.append(len(children()) - len(own))
        self.kept.append(len(waiting))
        found = [memory.resident_bytes for worker in waiting if (memory := worker.process.read_memory()) is not None]
        self.worker_memory = max([self.worker_memory, *found])


async def settled(pool: WorkerPool) -> list[PooledWorker]:
    """Wait until a pool has nothing to start or to close, and return its workers that wait for another program."""
    stock, deadline = pool.supply.inventory, time.monotonic() + PATIENCE_SECONDS
    while pool.supply.refill_spares() or stock.busy or len(stock.spares) < pool.options.spare_workers:
        assert time.monotonic() < deadline, (stock.busy, stock.spares)
        await asyncio.sleep(0.005)
    return list(stock.idle)


def programs(number: int) -> tuple[str, Any]:
    """A program and what must come of it: one text many times, one never seen before, a failing one, a paused one."""
    match number % 10:
        case 0 | 1 | 2 | 3:
            return "return 1 + 1", 2
        case 4 | 5:
            return f"return {number} * 2", number * 2
        case 6 | 7:
            return "const got = await Promise.all([1, 2, 3].map((n) => tools.look({ n }))); return got.length", 3
        case 8:
            return f"console.log('x'.repeat(100)); throw new TypeError('number {number}')", CodeModeError
        case _:
            return "return await tools.pay({ n: 1 })", "paid"


async def look(value: Any, _context: Any) -> Any:
    """Return something large enough to be seen when it stays."""
    return {"n": value["n"], "text": "y" * 1000}


def code_mode_over(pool: WorkerPool) -> Any:
    """The tool that all invocations run on; it forgets claims quickly, as a host that lives long does in the end."""
    # Until it expires, the claim of a continuation and what came of it are kept on purpose, up to a limit.
    continuation = ContinuationOptions(max_age_ms=5000, guard=MemoryResumeGuard())
    tools = [Tool("look", execute=look), Tool("pay", execute=lambda _input, _context: "paid", needs_approval=True)]
    return create(tools, {"approval": {"mode": "interrupt"}, "continuation": continuation}, pool=pool)


async def one(code_mode: Any, number: int) -> None:
    """Run one program, and go on with it when it pauses."""
    js, expected = programs(number)
    try:
        outcome = await code_mode.execute({"js": js})
        if isinstance(outcome, Interrupt):
            outcome = await code_mode.resume(outcome, {"approved": True})
    except CodeModeError as error:
        assert expected is CodeModeError, error
        assert error.message == f"number {number}"
    else:
        assert outcome == expected, outcome


def run_soak(
    invocations: int, *, warm_up: int, every: int, start_method: str = "fork", programs_per_worker: int | None = None
) -> Figures:
    """Run them, and look at the host after the warm-up and every so many."""
    figures = Figures()

    async def main(pool: WorkerPool) -> None:
        code_mode = code_mode_over(pool)
        for number in range(warm_up):
            await one(code_mode, number)
        figures.sample(pool, await settled(pool))
        for number in range(invocations):
            started = time.perf_counter()
            await one(code_mode, number)
            figures.latencies_ms.append((time.perf_counter() - started) * 1000)
            if (number + 1) % every == 0:
                figures.sample(pool, await settled(pool))

    with nothing_left():
        settings = {"max_workers": MAX_WORKERS, "start_method": start_method}
        pool = WorkerPool({**settings, **keeping(programs_per_worker)})
        try:
            asyncio.run(main(pool))
            assert pool.active == 0
        finally:
            pool.close()
    return figures


def problems_of(figures: Figures) -> list[str]:
    """What did not stay as it was; says nothing of times."""
    found: list[str] = []
    if figures.growth_bytes >= MOST_GROWTH_BYTES:
        found.append(f"memory grew by {figures.growth_bytes} bytes: {figures.memory}")
    if max(figures.descriptors) - min(figures.descriptors) > DESCRIPTORS_MAY_VARY_BY:
        found.append(f"descriptors: {figures.descriptors}")
    if len(set(figures.processes)) != 1:
        found.append(f"processes: {figures.processes}")
    if max(figures.kept, default=0) > MAX_WORKERS:
        found.append(f"waiting workers: {figures.kept}")
    return found


def main() -> None:
    """Run it long, and print the figures."""
    defaults = ("20000", "fork", "1")
    count, start_method, most, *_ = [*sys.argv[1:], *defaults[len(sys.argv) - 1 :]]
    invocations, started = int(count), time.monotonic()
    figures = run_soak(
        invocations, warm_up=2 * WINDOW, every=WINDOW, start_method=start_method, programs_per_worker=int(most)
    )
    first, last = figures.p99_ms(0, WINDOW), figures.p99_ms(-WINDOW, invocations)
    problems = problems_of(figures)
    if last > MOST_SLOWER * first:
        problems.append(f"p99 rose from {first:.2f} to {last:.2f} ms")
    median = sorted(figures.latencies_ms)[invocations // 2]
    over = f"{start_method}, {most} for a worker, {time.monotonic() - started:.0f} s"
    print(f"soak: {invocations} invocations after {2 * WINDOW} to warm up, {over}")
    print(
        f"  host memory        {figures.memory[0] / 1048576:.1f} MiB, {figures.growth_bytes / 1048576:+.2f} MiB since"
    )
    print(f"  of each {WINDOW}       {' '.join(f'{memory / 1048576:.1f}' for memory in figures.memory)} MiB")
    print(f"  descriptors        {min(figures.descriptors)} to {max(figures.descriptors)}")
    print(f"  child processes    {min(figures.processes)} to {max(figures.processes)}")
    largest = f"{figures.worker_memory / 1048576:.0f} MiB"
    print(f"  waiting workers    {min(figures.kept)} to {max(figures.kept)}, with at most {largest}")
    print(f"  latency            median {median:.2f} ms")
    print(f"  p99 of {WINDOW}        first {first:.2f} ms, last {last:.2f} ms ({last / first:.2f}x)")
    each = (figures.p99_ms(start, start + WINDOW) for start in range(0, invocations, WINDOW))
    print(f"  p99 of each {WINDOW}   {' '.join(f'{p99:.1f}' for p99 in each)}")
    print("  left afterwards    no process, no descriptor")
    sys.exit("\n".join(problems) or None)


if __name__ == "__main__":
    main()
