"""Writes files of others: whole or not at all, with the rights they had, where a link of theirs leads."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from ..config.values import ConfigError

OWNER_ALONE = 0o600


def write_whole(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Put ``content`` at ``path`` at once, so that a reader sees the old or the new. Keeps mode and symbolic links.

    A new file is its owner's alone, unless ``mode`` says else. Raises `ConfigError` where the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(target, content, _mode_of(target, mode))
    except OSError as problem:
        raise ConfigError(f"{path}: this file cannot be written: {problem.strerror}") from None


def remove(path: Path) -> None:
    """Remove a file, or what a link leads to, if it is there. Raises `ConfigError` where it cannot be."""
    try:
        Path(os.path.realpath(path)).unlink(missing_ok=True)
    except OSError as problem:
        raise ConfigError(f"{path}: this file cannot be removed: {problem.strerror}") from None


def _mode_of(target: Path, wanted: int | None) -> int:
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    return OWNER_ALONE if wanted is None else wanted


def _replace(target: Path, content: bytes, mode: int) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
