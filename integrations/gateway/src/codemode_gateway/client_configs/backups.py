"""The files beside a client's file in which it is kept as it was before each installation."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from ..config import files
from .importing import MAX_BYTES
from .texts import FileText
from .writing import OWNER_ALONE, remove, write_whole

_KEPT = "codemode-backup"
_MADE = "codemode-created"
"""Says of a file, which it is named after, that the installation has made it."""


def keep(file: FileText) -> Path:
    """Keep a file as it is and return where: bytes and rights are the same, and no earlier one is written over."""
    kind = _KEPT if file.is_there else _MADE
    path = file.path.with_name(f"{file.path.name}.{kind}")
    number = 1
    while path.exists():
        number += 1
        path = file.path.with_name(f"{file.path.name}.{kind}-{number}")
    mode = stat.S_IMODE(file.path.stat().st_mode) if file.is_there else OWNER_ALONE
    write_whole(path, file.content or b"", mode=mode)
    return path


def of(path: Path) -> list[Path]:
    """Return the backups of a file, the oldest first; one that says that the file was made comes before all."""
    found = [one for one in path.parent.glob("*") if _number(path, one, _KEPT) or _number(path, one, _MADE)]
    return sorted(found, key=lambda one: (_number(path, one, _KEPT) or 0, _number(path, one, _MADE)))


def content(backup: Path) -> bytes | None:
    """Return what a file was, None where it was not there."""
    return None if f".{_MADE}" in backup.name else files.content_of(backup, MAX_BYTES)


def forget(used: Iterable[Path]) -> None:
    """Remove backups that were put back."""
    for one in used:
        remove(one)


def _number(path: Path, one: Path, kind: str) -> int:
    """Return which backup of ``path`` this is, from 1; 0 for none."""
    first = f"{path.name}.{kind}"
    rest = one.name.removeprefix(f"{first}-")
    if one.name == first:
        return 1
    return int(rest) if rest != one.name and rest.isascii() and rest.isdigit() else 0
