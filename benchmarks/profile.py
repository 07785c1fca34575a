"""Where the time of a run goes: `python -m benchmarks.profile steps W2` and `python -m benchmarks.profile cpu W2 8`.

`steps` marks what happens on the host's side and prints the microseconds between the marks, medians of the middle half
of the runs. `cpu` keeps so many runs in flight and prints what one of them costs each process: CPU and page faults.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codemode.execution import execution, runner
from codemode.workers import channel, pool

from .latency import SPARE_READY_SECONDS
from .measure import runs_per_second
from .processes import family
from .programs import by_name
from .workloads import code_mode_tool

Mark = tuple[str, float]

# What is marked, and how it is called in the table.
_MARKED = (
    (pool.WorkerPool, "acquire", "take a worker"),
    (execution, "Runner", "make the runner"),
    (channel.WorkerChannel, "send", "send"),
    (channel.WorkerChannel, "_on_readable", "read"),
    (runner.Runner, "_perform_call", "call"),
    (runner.Runner, "_finish", "finish"),
)
_TICKS_MS = 1000 / os.sysconf("SC_CLK_TCK")


def _marking(function: Callable[..., Any], name: str, marks: list[Mark]) -> Callable[..., Any]:
    def plain(*args: Any, **keywords: Any) -> Any:
        marks.append((f"{name} >", time.perf_counter()))
        result = function(*args, **keywords)
        marks.append((f"{name} <", time.perf_counter()))
        return result

    async def awaited(*args: Any, **keywords: Any) -> Any:
        marks.append((f"{name} >", time.perf_counter()))
        result = await function(*args, **keywords)
        marks.append((f"{name} <", time.perf_counter()))
        return result

    return awaited if inspect.iscoroutinefunction(function) else plain


async def steps(workload: str, runs: int) -> None:
    """Print the steps of one run, paced as for W1 to W4."""
    marks: list[Mark] = []
    for owner, attribute, name in _MARKED:
        setattr(owner, attribute, _marking(getattr(owner, attribute), name, marks))
    tool, js = code_mode_tool(), by_name(workload).js
    taken: list[list[Mark]] = []
    for _ in range(runs):
        await asyncio.sleep(SPARE_READY_SECONDS)
        marks.clear()
        marks.append(("begin", time.perf_counter()))
        await tool.execute({"js": js})
        marks.append(("end", time.perf_counter()))
        taken.append(list(marks))
    names = statistics.mode(tuple(name for name, _ in one) for one in taken[runs // 10 :])
    alike = [one for one in taken[runs // 10 :] if tuple(name for name, _ in one) == names]
    alike.sort(key=lambda one: one[-1][1] - one[0][1])
    middle = alike[len(alike) // 4 : len(alike) * 3 // 4 + 1]
    for at in range(1, len(names)):
        microseconds = statistics.median((one[at][1] - one[at - 1][1]) * 1e6 for one in middle)
        print(f"{names[at - 1]:18} -> {names[at]:18} {microseconds:7.1f}")
    whole = statistics.median((one[-1][1] - one[0][1]) * 1e6 for one in middle)
    print(f"{len(alike)} of {runs} runs took these steps; median of the middle half {whole:.0f} us")


async def cpu(workload: str, in_flight: int, seconds: float) -> None:
    """Print what one run costs host, zygote and worker. A worker counts once the zygote has reaped it."""
    tool, js = code_mode_tool(), by_name(workload).js
    await asyncio.gather(*(tool.execute({"js": js}) for _ in range(in_flight)))
    zygote = family(os.getpid())[1]  # this process's only child
    host_before, zygote_before, done = _usage(os.getpid()), _usage(zygote), 0

    async def work() -> None:
        nonlocal done
        await tool.execute({"js": js})
        done += 1

    rate = await runs_per_second(work, in_flight, seconds)
    host = [(now - then) / done for now, then in zip(_usage(os.getpid()), host_before, strict=True)]
    forks = [(now - then) / done for now, then in zip(_usage(zygote), zygote_before, strict=True)]
    print(f"{rate:.0f} runs/s of {workload} with {in_flight} in flight; for each run")
    for name, (faults, user, system) in (("host", host[:3]), ("zygote", forks[:3]), ("worker", forks[3:])):
        print(
            f"{name:7} {user + system:.2f} ms of CPU ({user:.2f} user, {system:.2f} system), {faults:.0f} page faults"
        )
    print(f"all     {sum(host[1:3]) + sum(forks[1:3]) + sum(forks[4:]):.2f} ms")


def _usage(pid: int) -> tuple[float, ...]:
    """Page faults, user and system milliseconds, of a process and then of its children that have been reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    faults, reaped_faults = int(fields[7]), int(fields[8])
    user, system, reaped_user, reaped_system = (int(ticks) * _TICKS_MS for ticks in fields[11:15])
    return faults, user, system, reaped_faults, reaped_user, reaped_system


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("steps", "cpu"))
    parser.add_argument("workload", choices=("W1", "W2", "W3", "W4", "W6"))
    parser.add_argument("in_flight", nargs="?", type=int, default=8)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    if given.what == "steps":
        asyncio.run(steps(given.workload, given.runs))
    else:
        asyncio.run(cpu(given.workload, given.in_flight, given.seconds))


if __name__ == "__main__":
    main()
