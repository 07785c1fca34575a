"""A host process under load, as a program of its own: `python -m benchmarks.cost.load '<Load as JSON>'`.

It says ``ready``, waits for a line, and prints what it came to as JSON: runs, seconds, the CPU of its processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass, replace

from codemode.stores import PostgresInterruptStore

from ..processes import ROOT, environment, family, pss_mib
from .clocks import clock_ms, go_first, machine_ms, reaped_ms, server_ms, server_of, since
from .runs import Load, Pool, Runs

_CPU = ("host_ms", "zygote_ms", "worker_ms", "store_ms")
_WARM_UP_RUNS = 60
_WARM_UP_PAUSES = 200  # each connection prepares its statements
_LEAD_SECONDS = 0.5  # until as many end as begin
_LEAD_ANSWERS = 3.0  # until as many pauses are answered as begin, in times that an answer takes


@dataclass(frozen=True, slots=True)
class Found:
    """What it came to: ``runs`` ended within ``seconds`` and ``arriving`` a second had come; the CPU of
    one run and latencies are in milliseconds.

    ``store_ms`` is that of Postgres. ``others`` is how many CPUs other processes had meanwhile, ``load`` the machine's
    load average. Chance decided ``pausing`` of runs and ``failing`` of workers. ``slowness`` is what the same work took
    then, as a multiple of what it took before (`measure.Pace`).
    """

    runs: int
    seconds: float
    arriving: float
    host_ms: float
    zygote_ms: float
    worker_ms: float
    p50_ms: float
    p99_ms: float
    mib: float
    others: float
    load: float
    store_ms: float = 0.0
    pausing: float = 0.0
    failing: float = 0.0
    slowness: float = 1.0

    @property
    def steady(self) -> Found:
        """What it would have come to on the machine as it was before."""
        parts = {name: getattr(self, name) / self.slowness for name in _CPU}
        return replace(self, **parts, slowness=1.0)

    @property
    def cpu_ms(self) -> float:
        """The CPU of one run in all its processes."""
        return self.host_ms + self.zygote_ms + self.worker_ms + self.store_ms

    @property
    def rate(self) -> float:
        """Runs a second."""
        return self.runs / self.seconds

    @property
    def busy(self) -> float:
        """How many CPUs it kept busy."""
        return self.rate * self.cpu_ms / 1000


def usage(pid: int) -> tuple[float, float, float]:
    """Return the milliseconds of a host process, of its zygote, and of workers that have ended."""
    zygote = family(pid)[1]
    return time.process_time() * 1000, clock_ms(zygote), reaped_ms(zygote)


async def _closed(load: Load, run: Callable[[], Awaitable[None]], ends: float) -> None:
    async def keep_going() -> None:
        while time.perf_counter() < ends:
            await run()

    await asyncio.gather(*(keep_going() for _ in range(load.in_flight)))


async def _open(load: Load, run: Callable[[], Awaitable[None]], ends: float) -> None:
    rng, started = random.Random(load.seed + 1), set[asyncio.Future[None]]()
    at = time.perf_counter()
    while (at := at + rng.expovariate(load.rate)) < ends:
        if (left := at - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        started.add(asyncio.ensure_future(run()))
    await asyncio.gather(*started)


async def under(load: Load) -> Found:
    """Run the load in this process; ``seconds`` of it count, and what it started is waited for."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(PostgresInterruptStore(load.dsn)) if load.dsn else None
        pool = Pool({"max_workers": load.max_workers, "on_saturation": "wait"})
        runs = Runs(load, await stack.enter_async_context(pool), store)
        await runs.one()
        for pid in family(os.getpid())[:2]:  # this process, and its zygote with a session of its own
            go_first(pid)
        await runs.warmed_up(_WARM_UP_PAUSES if load.dsn else _WARM_UP_RUNS)
        server = server_of(load.dsn) if load.dsn else 0
        for pid in family(server) if server else ():  # each with a session of its own
            go_first(pid)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        return await _measured(load, runs, server)


async def _measured(load: Load, runs: Runs, server: int) -> Found:
    before, of_server = usage(os.getpid()), server_ms(server) if server else {}
    machine, begun, lead = machine_ms(), time.perf_counter(), _LEAD_SECONDS + _LEAD_ANSWERS * load.answer_s
    held = asyncio.get_running_loop().create_future()
    measuring = asyncio.ensure_future(_memory(lead + load.seconds / 2, held))
    await (_open if load.rate else _closed)(load, runs.one, begun + lead + load.seconds)
    await runs.all_decided()
    all_ended = time.perf_counter() - begun
    await measuring
    parts = [now - then for now, then in zip(usage(os.getpid()), before, strict=True)]
    parts.append(since(of_server, server) if server else 0.0)
    ranked, count = sorted(runs.took_ms), len(runs.ended)
    return Found(
        runs=sum(0 < one - begun - lead <= load.seconds for one in runs.ended),
        seconds=load.seconds,
        arriving=count / (load.seconds + lead),
        host_ms=parts[0] / count,
        zygote_ms=parts[1] / count,
        worker_ms=parts[2] / count,
        store_ms=parts[3] / count,
        p50_ms=statistics.median(ranked),
        p99_ms=ranked[min(count - 1, count * 99 // 100)],
        mib=held.result(),
        others=max(0.0, (machine_ms() - machine - sum(parts)) / all_ended / 1000),
        load=os.getloadavg()[0],
        pausing=runs.paused / count,
        failing=runs.died / max(1, runs.attempts),
    )


async def _memory(after: float, found: asyncio.Future[float]) -> None:
    """Read the memory once in the middle of the load, outside the loop that is measured."""
    await asyncio.sleep(after)
    command = [sys.executable, "-m", "benchmarks.cost.load", "pss", str(os.getpid())]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=ROOT)
    said, _ = await process.communicate()
    found.set_result(float(said))


def _found_of(loads: Sequence[Load]) -> list[Found]:
    """Run loads at the same time, each in a host process of its own."""
    with ExitStack() as stack:
        hosts = [stack.enter_context(_started(load)) for load in loads]
        for host in hosts:
            assert host.stdout is not None
            if host.stdout.readline().strip() != "ready":
                raise OSError("a host under load ended early")
        for host in hosts:
            assert host.stdin is not None
            host.stdin.write("\n")
            host.stdin.flush()
        return [Found(**json.loads(host.stdout.read() if host.stdout else "")) for host in hosts]


def on_a_host(load: Load, processes: int = 1) -> Found:
    """Run a load in each of so many processes of one host at the same time, and return what they came to together."""
    return _together(_found_of([replace(load, seed=load.seed + at * 100) for at in range(processes)]))


def _together(found: list[Found]) -> Found:
    runs = sum(one.runs for one in found)

    def mean(name: str) -> float:
        return sum(getattr(one, name) * one.runs for one in found) / runs

    others = max(0.0, statistics.mean(one.others for one in found) - sum(one.busy for one in found[1:]))
    return replace(
        found[0],
        runs=runs,
        arriving=sum(one.arriving for one in found),
        others=others,
        mib=sum(one.mib for one in found),
        **{name: mean(name) for name in (*_CPU, "p50_ms", "p99_ms")},
    )


def _started(load: Load) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.cost.load", json.dumps(asdict(load))]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=environment(), start_new_session=True
    )


if __name__ == "__main__":
    if sys.argv[1] == "pss":
        print(pss_mib(int(sys.argv[2])))
    else:
        print(json.dumps(asdict(asyncio.run(under(Load(**json.loads(sys.argv[1])))))))
