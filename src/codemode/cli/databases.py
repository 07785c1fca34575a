"""Databases that commands are given: one that does not exist is refused, unless it is to be created."""

from __future__ import annotations

from pathlib import Path

from ..data.similar_names import nearest_names
from ..trace.visible_text import visible
from .exits import UsageError

_SQLITE = "sqlite:///"
_MAX_NEIGHBOURS = 1_000


def sqlite_file(url: str) -> Path | None:
    """Return the file of ``sqlite:///file``; None for the URL of another database."""
    return Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None


def require_database(url: str, *, create: bool) -> None:
    """Raise `UsageError` for a SQLite file that does not exist: a mistyped path would make an empty one.

    Other databases say themselves that they do not exist.
    """
    path = sqlite_file(url)
    if path is None or create:
        return
    try:
        if path.exists():
            return
        neighbours = [one.name for _, one in zip(range(_MAX_NEIGHBOURS), path.parent.iterdir(), strict=False)]
    except OSError:
        neighbours = []
    near = nearest_names(path.name, neighbours)
    meant = f" (did you mean {visible(str(path.with_name(near[0])))}?)" if near else ""
    raise UsageError(f"there is no database {visible(str(path))}{meant}; correct the path, or create it with --create")
