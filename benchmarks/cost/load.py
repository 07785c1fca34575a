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
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from codemode import Tool, WorkerPool, create_code_mode_tool

from ..processes import ROOT, environment, family, pss_mib

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
_JS = "let n = 0; for (let i = 0; i < COUNT; i++) n += await tools.wait({}); return n"
_WARM_UP_RUNS = 60
_PRIORITY = -15
_LEAD_SECONDS = 0.5  # until as many end as begin


@dataclass(frozen=True, slots=True)
class Load:
    """What one host process is given. Tools take an exponential time of ``latency_ms`` on average.

    Closed: ``in_flight`` runs, the next as soon as one ends. Open: with ``rate`` above 0, so many a second arrive at
    random (Poisson).
    """

    calls: int
    latency_ms: float
    in_flight: int = 0
    rate: float = 0.0
    max_workers: int = 32
    seconds: float = 4.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Found:
    """What it came to: ``runs`` ended within ``seconds`` and ``arriving`` a second had come; the CPU of
    one run and latencies are in milliseconds.

    ``others`` is how many CPUs other processes had meanwhile, ``load`` the machine's load average.
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

    @property
    def cpu_ms(self) -> float:
        """The CPU of one run in all its processes."""
        return self.host_ms + self.zygote_ms + self.worker_ms

    @property
    def rate(self) -> float:
        """Runs a second."""
        return self.runs / self.seconds

    @property
    def busy(self) -> float:
        """How many CPUs it kept busy."""
        return self.rate * self.cpu_ms / 1000


def clock_ms(pid: int) -> float:
    """Return the CPU of a process that lives, by its own clock."""
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e6


def reaped_ms(pid: int) -> float:
    """Return the CPU of a process's children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) * _TICK_MS


def machine_ms() -> float:
    """Return the CPU that all processes of the machine have had."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, soft_irq, steal = (int(one) for one in fields[:8])
    return (user + nice + system + irq + soft_irq + steal) * _TICK_MS


def usage(pid: int) -> tuple[float, float, float]:
    """Return the milliseconds of a host process, of its zygote, and of workers that have ended."""
    zygote = family(pid)[1]
    return time.process_time() * 1000, clock_ms(zygote), reaped_ms(zygote)


def go_first(pid: int) -> None:
    """Let a session of processes go before others on a busy machine, where it lets: they would be measured too."""
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(_PRIORITY), encoding="ascii")


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
    rng, js = random.Random(load.seed), _JS.replace("COUNT", str(load.calls))

    async def wait(_: object) -> int:
        if load.latency_ms:
            await asyncio.sleep(rng.expovariate(1000 / load.latency_ms))
        return 1

    pool = WorkerPool({"max_workers": load.max_workers, "on_saturation": "wait"})
    async with pool:
        tool, ended, took = create_code_mode_tool([Tool("wait", execute=wait)], pool=pool), list[float](), list[float]()

        async def run() -> None:
            begun = time.perf_counter()
            assert await tool.execute({"js": js}) == load.calls
            ended.append(time.perf_counter())
            took.append((ended[-1] - begun) * 1000)

        await run()
        for pid in family(os.getpid())[:2]:  # this process, and its zygote with a session of its own
            go_first(pid)
        at_once = min(load.max_workers, max(load.in_flight, 1))
        for _ in range(max(1, _WARM_UP_RUNS // at_once)):
            await asyncio.gather(*(run() for _ in range(at_once)))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        ended.clear()
        took.clear()
        before, machine, begun = usage(os.getpid()), machine_ms(), time.perf_counter()
        held = asyncio.get_running_loop().create_future()
        measuring = asyncio.ensure_future(_memory(load.seconds / 2, held))
        await (_open if load.rate else _closed)(load, run, begun + _LEAD_SECONDS + load.seconds)
        all_ended = time.perf_counter() - begun
        await measuring
        parts = [(now - then) / len(ended) for now, then in zip(usage(os.getpid()), before, strict=True)]
        ours = sum(parts) * len(ended)
    ranked = sorted(took)
    return Found(
        runs=sum(0 < one - begun - _LEAD_SECONDS <= load.seconds for one in ended),
        seconds=load.seconds,
        arriving=len(ended) / (load.seconds + _LEAD_SECONDS),
        host_ms=parts[0],
        zygote_ms=parts[1],
        worker_ms=parts[2],
        p50_ms=statistics.median(ranked),
        p99_ms=ranked[min(len(ranked) - 1, len(ranked) * 99 // 100)],
        mib=held.result(),
        others=max(0.0, (machine_ms() - machine - ours) / all_ended / 1000),
        load=os.getloadavg()[0],
    )


async def _memory(after: float, found: asyncio.Future[float]) -> None:
    """Read the memory once in the middle of the load, outside the loop that is measured."""
    await asyncio.sleep(after)
    command = [sys.executable, "-m", "benchmarks.cost.load", "pss", str(os.getpid())]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=ROOT)
    said, _ = await process.communicate()
    found.set_result(float(said))


def found_of(loads: Sequence[Load]) -> list[Found]:
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
