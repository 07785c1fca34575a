"""The CPU of processes that are measured, and how they go before others; the processes of a Postgres."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from ..processes import family

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
_PRIORITY = -15


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


def go_first(pid: int) -> None:
    """Let a session of processes go before others on a busy machine, where it lets: they would be measured too."""
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(_PRIORITY), encoding="ascii")


def server_of(dsn: str) -> int:
    """Return the first process of the Postgres behind a socket in its own folder. Raises `OSError`."""
    folder = dsn.split(maxsplit=1)[0].removeprefix("host=")
    return int((Path(folder) / "data" / "postmaster.pid").read_text(encoding="ascii").split()[0])


def server_ms(pid: int) -> dict[int, float]:
    """Return the CPU of each process of a Postgres."""
    found: dict[int, float] = {}
    for one in family(pid):
        with suppress(OSError):  # it may have ended
            found[one] = clock_ms(one)
    return found


def since(before: dict[int, float], pid: int) -> float:
    """Return the CPU that a Postgres has had since."""
    return sum(now - before.get(one, 0.0) for one, now in server_ms(pid).items())
