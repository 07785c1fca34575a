"""Hostile programs as files: each carries the end it must come to. Runs nothing.

`programs/<group>/<id>.js` starts with a line `//! {...}`; the program is what follows. Where a program needs bytes that
a text file should not hold, `<id>.json` has `{"expect": {...}, "program": "..."}`; where it is large and monotonous,
`{"expect": {...}, "parts": [[text, count], ...]}`. What another face does otherwise stands in the member of its name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.suite import full_only, rounds

FOLDER = Path(__file__).parent / "programs"
EXEC_FOLDER = FOLDER.parent / "exec_programs"
"""Those against what only exec has."""
SLOW = frozenset(("engine", "floods", "iterators", "loops", "memory", "natives", "parser", "recursion", "regex"))
"""Groups of programs that compute until something stops them: a quarter of each, but in the full suite."""
AGAINST_SURFACES = ("ends", "forging", "leaks", "pollution")
"""Groups that every surface meets, but in the full suite, where each meets a part of all."""
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
        "waits",
    )
)
"""What may be expected; "waits" of exec alone, for a program whose calls never end. A broken protocol and a dead worker
may not: they would be holes."""


@dataclass(frozen=True)
class Expectation:
    """How a program may end, and what must be seen of it.

    ``ends``: any of `ENDS`. ``value``, ``error_name``, ``message`` (a part of it): checked when the program returns,
    or throws. ``calls``: what reached the tools, in order; None when any number may.
    ``output``: the items that a program of exec has written, texts as such and other values in a list.
    ``sample``: the id of the published sample that this program is adapted from. ``exec``: fields that differ in exec.
    """

    ends: tuple[str, ...]
    calls: list[Any] | None = field(default_factory=list)
    value: Any = ...
    error_name: str | None = None
    message: str | None = None
    console: list[str] | None = None
    output: list[Any] | None = None
    memory_mib: int = 64
    stack_kib: int = 2048
    timeout_ms: int | None = None
    sample: str | None = None
    exec: dict[str, Any] | None = None

    def of_face(self, face: str | None) -> Expectation:
        """Return what a face expects; None: codeMode."""
        other: dict[str, Any] = (self.exec or {}) if face == "exec" else {}
        return replace(self, **{**other, "ends": tuple(other.get("ends", self.ends))})


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
        return rounds(150, 400) if "timeout" in self.expect.ends else 60_000


def load_program(path: Path, face: str | None = None) -> HostileProgram:
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
    expect = Expectation(**header).of_face(face)
    if not set(expect.ends) <= ENDS or not expect.ends:
        raise ValueError(f"{path} expects an unknown end: {expect.ends}")
    return HostileProgram(path.parent.name, path.stem, source, expect)


def groups(folder: Path = FOLDER) -> list[str]:
    """The names of all groups."""
    return sorted(one.name for one in folder.iterdir() if one.is_dir())


def groups_of_other_surfaces() -> list[Any]:
    """Return parameters of a test: the groups that a surface meets which is not the first."""
    return [*AGAINST_SURFACES, *full_only(*(group for group in groups() if group not in AGAINST_SURFACES))]


def load_group(group: str, face: str | None = None, folder: Path = FOLDER) -> list[HostileProgram]:
    """Every program of a group, by id, with what this face expects."""
    files = [path for path in (folder / group).iterdir() if path.suffix in (".js", ".json")]
    return [load_program(path, face) for path in sorted(files)]


def sample(group: str, face: str | None = None) -> list[HostileProgram]:
    """Return a quarter of a group, spread over it: all of it in the full suite."""
    return load_group(group, face)[:: rounds(4, 1)]


def usual(group: str) -> list[HostileProgram]:
    """Return half the programs of a group, or a quarter where they take long: all in the full suite."""
    return sample(group) if group in SLOW else load_group(group)[:: rounds(2, 1)]
