"""Other processes: how long one takes to its first line, and the memory of one with all its descendants."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def environment() -> dict[str, str]:
    """Return what a measured process is started with: it keeps its byte code, as it does where people use it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def first_line_ms(command: Sequence[str]) -> tuple[float, str]:
    """Return the milliseconds from starting a program to its first line of output, and the line: empty if it failed."""
    started = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, env=environment()
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        passed = time.perf_counter() - started
        process.wait(30)
    return passed * 1000, line.strip()


def bare_interpreter() -> list[str]:
    """Return the command of an interpreter that does nothing but answer."""
    return [sys.executable, "-c", "print(1)"]


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - of bare numbers
        if entry.isdigit() and (parent := _parent(int(entry))) is not None:
            children.setdefault(parent, []).append(int(entry))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def pss_mib(pid: int) -> float:
    """Return the proportional set size of a process and its descendants. Raises `OSError` where it cannot be read."""
    return sum(_pss_kib(one) for one in family(pid)) / 1024


def _parent(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def _pss_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
