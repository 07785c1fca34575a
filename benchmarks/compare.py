"""Every row on another commit and on this tree, interleaved: what a change has made slower.

`python -m benchmarks.compare REF [--rounds N] [--only W1,W2]`. Each round is a process of its own on each side, with
that side's benchmarks and sources. A row is slower when the middle halves of the rounds do not overlap and the ratio of
the medians is above 1.05. Exits with 1 when a row is slower.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .processes import environment

ROOT = Path(__file__).parent.parent
MOST = 1.05
_MORE_IS_BETTER = ("runs/s",)
_SIDES = ("before", "after")
_NAMES = "W0,W1,W2,W2u,W3,W4,W5,W6,W7,W8,W9,W10,W11,W16,W17,W18,W19,W21"
_GATEWAY = "W21"
# `benchmarks.gateway` prints a table on both sides; servers that sleep are its own matter.
_GATEWAY_ROWS = """\
import asyncio, json
from benchmarks.gateway import gateway_rows

rows = asyncio.run(gateway_rows(2, servers=1, seconds=0.0))
print(json.dumps({"rows": [row.figures() for row in rows]}))
"""


@dataclass(slots=True)
class Compared:
    """One row's figure in every round, by side."""

    unit: str
    figures: dict[str, list[float]] = field(default_factory=lambda: {side: list[float]() for side in _SIDES})

    @property
    def ratio(self) -> float:
        """How many times as long, or as much, as before; above 1 is worse."""
        before, after = (statistics.median(self.figures[side]) for side in _SIDES)
        return before / after if self.unit in _MORE_IS_BETTER else after / before

    @property
    def is_slower(self) -> bool:
        """True when the middle halves lie apart, in the wrong direction, by more than a twentieth."""
        before, after = (_middle_half(self.figures[side]) for side in _SIDES)
        lies_apart = after[1] < before[0] if self.unit in _MORE_IS_BETTER else after[0] > before[1]
        return lies_apart and self.ratio > MOST


def _middle_half(figures: list[float]) -> tuple[float, float]:
    low, _, high = statistics.quantiles(figures, n=4)
    return low, high


def checked_out(ref: str, folder: Path) -> Path:
    """Put the files of a commit into a folder. Raises `subprocess.CalledProcessError` for an unknown one."""
    packed = subprocess.run(["git", "archive", ref], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(folder, filter="data")
    return folder


def measured(side: Path, options: list[str], names: list[str]) -> list[dict[str, Any]]:
    """Run one round of a side's own benchmarks and return its rows."""
    sources = [side / "src", *sorted(side.glob("integrations/*/src"))]
    variables = {**environment(), "PYTHONPATH": os.pathsep.join(map(str, sources))}
    of_run = [name for name in names if name != _GATEWAY]
    commands = [["-m", "benchmarks.run", "--json", *options, "--only", ",".join(of_run)]] if of_run else []
    commands += [["-c", _GATEWAY_ROWS]] if _GATEWAY in names else []
    rows: list[dict[str, Any]] = []
    for command in commands:
        done = subprocess.run(
            [sys.executable, *command], cwd=side, env=variables, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"the benchmarks of {side} failed: {done.stderr[-2000:]}")
        rows += json.loads(done.stdout)["rows"]
    return rows


def compare(sides: dict[str, Path], rounds: int, options: list[str], names: list[str]) -> dict[str, Compared]:
    """Return what every row came to on both sides, in rounds that take turns."""
    rows: dict[str, Compared] = {}
    for number in range(rounds):
        # The side that comes first finds the machine as the other left it: they take turns in that too.
        for name in _SIDES if number % 2 == 0 else reversed(_SIDES):
            for row in measured(sides[name], options, names):
                if row["ours"] is not None:
                    known = rows.setdefault(f"{row['name']:4} {row['what']}", Compared(row["unit"]))
                    known.figures[name].append(row["ours"])
    return {name: row for name, row in rows.items() if all(len(one) > 1 for one in row.figures.values())}


def table(rows: dict[str, Compared]) -> str:
    """Return the comparison for people."""
    lines = [f"{'':48} {'before':>10} {'after':>10} {'unit':7} ratio"]
    for name, row in rows.items():
        before, after = (statistics.median(row.figures[side]) for side in _SIDES)
        verdict = "  SLOWER" if row.is_slower else ""
        lines.append(f"{name[:48]:48} {before:10.3f} {after:10.3f} {row.unit:7} {row.ratio:5.2f}{verdict}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ref", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default=_NAMES)
    given = parser.parse_args(arguments)
    options = ["--rounds", "2", "--runs", str(given.runs), "--seconds", str(given.seconds)]
    with tempfile.TemporaryDirectory() as folder:
        sides = {"before": checked_out(given.ref, Path(folder)), "after": ROOT}
        rows = compare(sides, max(2, given.rounds), options, given.only.split(","))
    print(table(rows))
    return int(any(row.is_slower for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
