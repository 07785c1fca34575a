"""W0 and W8: the cold start and the memory of a whole host process."""

from __future__ import annotations

import statistics
import subprocess
import sys

from .processes import ROOT, bare_interpreter, environment, first_line_ms, pss_mib
from .table import Row

_COLD_TARGET_MS = 150
_MEMORY_TARGET_MIB = 60
_BARE_HOST = [sys.executable, "-c", "import sys; print('holding', flush=True); sys.stdin.readline()"]


def cold_rows(rounds: int) -> list[Row]:
    """Return W0: a fresh interpreter to its first result, minus the start of a bare one."""
    started: dict[str, list[float]] = {"": [], "W1": [], "W2": []}
    for _ in range(rounds + 1):
        for name, times in started.items():
            command = [sys.executable, "-m", "benchmarks.host", "cold", name] if name else bare_interpreter()
            taken, line = first_line_ms(command)
            if not line:
                raise OSError(f"{' '.join(command)} ended without a result")
            times.append(taken)
    # The first of each fills the disk cache.
    bare = statistics.median(started[""][1:])
    return [_cold_row(name, what, started[name][1:], bare) for name, what in (("W1", "return 1"), ("W2", "3 calls"))]


def _cold_row(name: str, what: str, times: list[float], bare: float) -> Row:
    ours = statistics.median(times) - bare
    return Row(
        "W0",
        f"cold, {what}",
        ours=ours,
        target=f"<= {_COLD_TARGET_MS} ms",
        met=ours <= _COLD_TARGET_MS,
        spread=(max(times) - min(times)) / statistics.median(times),
        note=f"beyond the {bare:.0f} ms of a bare interpreter; its spread is that of all rounds"
        if name == "W1"
        else "",
    )


def held_mib(command: list[str]) -> float:
    """Return the memory of a process and its descendants once it says that it is holding."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != "holding":
                raise OSError("the measured process ended early")
            return pss_mib(process.pid)
        finally:
            process.stdin.close()
            process.wait(30)


def memory_rows() -> list[Row]:
    """Return W8: with one warm worker and with eight in flight, beyond a bare interpreter."""
    try:
        bare = held_mib(_BARE_HOST)
        figures = [held_mib([sys.executable, "-m", "benchmarks.host", "hold", str(count)]) for count in (0, 8)]
    except OSError as error:
        return [Row("W8", "memory", unit="MiB", note=f"not measured: {error}")]
    warm, busy = (figure - bare for figure in figures)
    return [
        Row("W8", "memory, 1 warm worker", ours=warm, unit="MiB", note=f"beyond a bare interpreter's {bare:.1f} MiB"),
        Row(
            "W8",
            "memory, 8 in flight",
            ours=busy,
            unit="MiB",
            target=f"<= {_MEMORY_TARGET_MIB} MiB",
            met=busy <= _MEMORY_TARGET_MIB,
        ),
    ]
