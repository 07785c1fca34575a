"""The table: one row per workload, its floor, the ratio, the spread, and what it aims at."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import Any

CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(slots=True)
class Row:
    """One line. A missing figure is None; ``met`` is whether the target was met, None where there is none."""

    name: str
    what: str
    ours: float | None = None
    unit: str = "ms"
    floor: float | None = None
    ratio: float | None = None
    asyncio_ratio: float | None = None
    paced_ratio: float | None = None
    tail: float | None = None
    spread: float | None = None
    target: str = ""
    met: bool | None = None
    note: str = ""

    def figures(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return {name: _rounded(getattr(self, name)) for name in self.__dataclass_fields__}


_HEADS = ("", "workload", "ours", "unit", "floor", "ratio", "asyncio", "paced", "p95/p50", "spread", "target")


def table(rows: list[Row]) -> str:
    """Return the rows for people."""
    cells = [_HEADS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADS))]
    left = {0, 1, 3, 10}
    lines = [
        "  ".join(cell.ljust(width) if at in left else cell.rjust(width) for at, (cell, width) in line)
        for line in (enumerate(zip(line, widths, strict=True)) for line in cells)
    ]
    notes = [f"{row.name}: {row.note}" for row in rows if row.note]
    return "\n".join([line.rstrip() for line in lines] + ["", *notes] * bool(notes))


def machine() -> str:
    """Return what the figures were measured on."""
    return f"Python {platform.python_version()}, {platform.system()} {platform.release()}, {CPUS} CPUs"


def _cells(row: Row) -> tuple[str, ...]:
    verdict = {True: "met", False: "not met", None: ""}[row.met]
    target = " ".join(part for part in (row.target, f"({verdict})" if verdict else "") if part)
    ratios = (row.ratio, row.asyncio_ratio, row.paced_ratio, row.tail, row.spread)
    return (
        row.name,
        row.what,
        _figure(row.ours),
        row.unit,
        _figure(row.floor),
        *("" if one is None else f"{one:.2f}" for one in ratios),
        target,
    )


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if value < 100 else f"{value:.0f}"


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
