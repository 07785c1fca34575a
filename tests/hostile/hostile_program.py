"""Hostile programs as files: each carries the end it must come to. Runs nothing.

`programs/<group>/<id>.js` starts with a line `//! {...}`; the program is what follows. Where a program needs bytes that
a text file should not hold, `<id>.json` has `{"expect": {...}, "program": "..."}`; where it is large and monotonous,
`{"expect": {...}, "parts": [[text, count], ...]}`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "programs"
HEADER = "//! "

ENDS = frozenset(
    (
        "returns",
        "throws",
        "timeout",
        "memory",
        "syntax",
        "deadlock",
        "detached",
        "serialization",
        "bridge-limit",
        "tool-error",
        "engine",
    )
)
"""What may be expected. A broken protocol and a dead worker may not: they would be holes."""


@dataclass(frozen=True)
class Expectation:
    """How a program may end, and what must be seen of it.

    ``ends``: any of `ENDS`. ``value``, ``error_name``, ``message`` (a part of it): checked when the program returns,
    or throws. ``calls``: what reached the tools, in order; None when any number may.
    ``sample``: the id of the published sample that this program is adapted from.
    """

    ends: tuple[str, ...]
    calls: list[Any] | None = field(default_factory=list)
    value: Any = ...
    error_name: str | None = None
    message: str | None = None
    console: list[str] | None = None
    memory_mib: int = 64
    stack_kib: int = 2048
    timeout_ms: int | None = None
    sample: str | None = None


@dataclass(frozen=True)
class HostileProgram:
    """One program of the suite."""

    group: str
    id: str
    source: str
    expect: Expectation

    @property
    def timeout_ms(self) -> int:
        """Short where the clock is meant to end the program, generous where it is not."""
        if self.expect.timeout_ms is not None:
            return self.expect.timeout_ms
        return 400 if "timeout" in self.expect.ends else 8000


def load_program(path: Path) -> HostileProgram:
    """Read one file. Raises `ValueError` for a header that is missing or names an unknown end."""
    text = path.read_bytes().decode("utf-8")
    if path.suffix == ".json":
        content = json.loads(text)
        header = content["expect"]
        source = content.get("program") or "".join(part * count for part, count in content["parts"])
    else:
        first, _, source = text.partition("\n")
        if not first.startswith(HEADER):
            raise ValueError(f"{path} does not start with {HEADER!r}")
        header = json.loads(first.removeprefix(HEADER))
    expect = Expectation(**{**header, "ends": tuple(header["ends"])})
    if not set(expect.ends) <= ENDS or not expect.ends:
        raise ValueError(f"{path} expects an unknown end: {expect.ends}")
    return HostileProgram(path.parent.name, path.stem, source, expect)


def groups() -> list[str]:
    """The names of all groups."""
    return sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir())


def load_group(group: str) -> list[HostileProgram]:
    """Every program of a group, by id."""
    files = [path for path in (FOLDER / group).iterdir() if path.suffix in (".js", ".json")]
    return [load_program(path) for path in sorted(files)]
