"""What the scripts of the comparison see of processes: those below this one, what they hold, and how busy they are."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def descendants() -> list[int]:
    """Return the processes below this one."""
    found, left = list[int](), [os.getpid()]
    parents = {int(one.name): _stat(one)[1] for one in Path("/proc").iterdir() if one.name.isdigit() and _stat(one)}
    while left:
        parent = left.pop()
        children = [pid for pid, of in parents.items() if of == str(parent)]
        found += children
        left += children
    return found


def _stat(process: Path) -> list[str]:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def is_locked(pid: int) -> bool:
    """Tell whether the kernel filters a process's system calls and gives it no new privileges."""
    lines = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    return lines.get("Seccomp") == "2" and lines.get("NoNewPrivs") == "1"


def environment_of(pid: int) -> str:
    """Return the environment that a process was started with."""
    return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")


def cpu_seconds() -> float:
    """Return what this process and all below it have used of the processor."""
    stats = (_stat(Path(f"/proc/{pid}")) for pid in [os.getpid(), *descendants()])
    return sum(int(stat[11]) + int(stat[12]) for stat in stats if stat) / _TICKS


def memory_mib() -> float:
    """Return what this process, and none below it, holds in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 2**20


async def falls_silent(within_seconds: float) -> bool:
    """Tell whether this process and those below it stop computing: less than a quarter of a processor."""
    ends = time.monotonic() + within_seconds
    while time.monotonic() < ends:
        before, began = cpu_seconds(), time.monotonic()
        await asyncio.sleep(0.3)
        if cpu_seconds() - before < (time.monotonic() - began) / 4:
            return True
    return False


async def turns_during(work: Awaitable[Any]) -> tuple[int, Any]:
    """Return how often the event loop had a turn beside some work, and what that gave."""
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0.01)
        turns += 1
    return turns, task.result()


async def peak_during(work: Awaitable[Any], look: Callable[[], float] = memory_mib) -> float:
    """Return by how much this process grew at most beside some work."""
    before = peak = look()
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0.02)
        peak = max(peak, look())
    task.result()
    return peak - before


def limit_memory(gib: int) -> None:
    """Let this process fail, and not the machine, where a program takes all it can."""
    resource.setrlimit(resource.RLIMIT_AS, (gib << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
