"""Hostile modules as files: each carries what must come of it. Runs nothing.

`modules/<group>/<id>.js` starts with a line `//! {...}`; the program is what follows. Where it is large and monotonous,
`<id>.json` has `{"expect": {...}, "parts": [[text, count], ...]}`, with `#` for the number of the repetition.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.suite import rounds

FOLDER = Path(__file__).parent / "modules"
LARGE = ("builtins", "size")
HEADER = "//! "


@dataclass(frozen=True)
class ModuleExpectation:
    """What must be seen of a program.

    ``codes`` are those that its diagnostics may have; without an error among them it ends well, and with ``any`` it may
    end well all the same. ``result`` is then compared. ``calls`` is how many calls reach the tools: `[]` for none.
    """

    codes: tuple[str, ...] = ()
    result: Any = ...
    any: bool = False
    calls: list[Any] | None = None
    timeout_ms: int | None = None
    limits: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class HostileModule:
    """One program of the suite."""

    group: str
    id: str
    source: str
    expect: ModuleExpectation

    @property
    def timeout_ms(self) -> int:
        """Short where a limit may end the program, generous where none is meant to."""
        if self.expect.timeout_ms is not None:
            return self.expect.timeout_ms
        return 4000 if "SANDBOX_LIMIT" in self.expect.codes else 60_000


def groups() -> list[str]:
    """The names of all groups."""
    return sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def load_group(group: str) -> list[HostileModule]:
    """All programs of a group."""
    return [_load(path) for path in sorted((FOLDER / group).iterdir())]


def usual(group: str) -> list[HostileModule]:
    """Return all programs of a group, or a third where they are large and the suite is the default one."""
    return load_group(group)[:: rounds(3, 1) if group in LARGE else 1]


def _load(path: Path) -> HostileModule:
    text = path.read_bytes().decode()
    if path.suffix == ".json":
        content = json.loads(text)
        header = content["expect"]
        source = "".join(_repeated(part, count) for part, count in content["parts"])
    else:
        first, _, source = text.partition("\n")
        if not first.startswith(HEADER):
            raise ValueError(f"{path} does not start with {HEADER!r}")
        header = json.loads(first.removeprefix(HEADER))
    expect = ModuleExpectation(**{**header, "codes": tuple(header["codes"])})
    return HostileModule(path.parent.name, path.stem, source, expect)


def _repeated(part: str, count: int) -> str:
    return part * count if "#" not in part else "".join(part.replace("#", str(at)) for at in range(count))
