"""What the scripts of the comparison see of processes: those below this one, what they hold, and how busy they are."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TURN_SECONDS = 0.01


def descendants() -> list[int]:
    """Return the processes below this one."""
    found, left = list[int](), [os.getpid()]
    stats = {int(one.name): _stat(one) for one in Path("/proc").iterdir() if one.name.isdigit()}
    parents = {pid: stat[1] for pid, stat in stats.items() if stat}  # some end before they are looked at
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


def all_locked() -> list[bool]:
    """Tell of each process below this one whether the kernel filters its calls and gives it no new privileges."""
    found = (dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line) for text in _told("status"))
    return [lines.get("Seccomp") == "2" and lines.get("NoNewPrivs") == "1" for lines in found]


def environments() -> list[str]:
    """Return the environment that each process below this one was started with."""
    return [*_told("environ")]


def _told(what: str) -> Iterator[str]:
    """What the system tells of each process below this one; some end meanwhile."""
    for pid in descendants():
        with suppress(ProcessLookupError, FileNotFoundError):
            yield Path(f"/proc/{pid}/{what}").read_bytes().decode(errors="replace")


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


async def share_of_turns(work: Awaitable[Any]) -> float:
    """Return how many turns the event loop has beside some work, to those that it has where it is free.

    What its thread waits for a processor does not count: that is how busy the machine is.
    """
    began, waited, turns = time.monotonic(), _seconds_in_line(), 0
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(_TURN_SECONDS)
        turns += 1
    task.result()
    return turns * _TURN_SECONDS / (time.monotonic() - began - (_seconds_in_line() - waited))


def _seconds_in_line() -> float:
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def keeps_free(share: float) -> str:
    """Whether so many turns are what a loop has that is free: at least half of them."""
    return "yes" if share >= 0.5 else "no, it has less than half of its turns"


async def peak_during(work: Awaitable[Any], enough: float) -> float:
    """Return by how many MiB this process grew at most beside some work, which is left alone once that is enough."""
    before = peak = memory_mib()
    task = asyncio.ensure_future(work)
    while not task.done() and peak - before < enough:
        await asyncio.sleep(_TURN_SECONDS)
        peak = max(peak, memory_mib())
    return peak - before
