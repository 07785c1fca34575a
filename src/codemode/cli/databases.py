"""Refuse databases that do not exist, unless they are to be created."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from ..data.similar_names import nearest_names
from ..trace.visible_text import visible
from .exits import UsageError

_SQLITE = "sqlite:///"
_MAX_FILES = 1_000


def sqlite_file(url: str) -> Path | None:
    """Return the file of ``sqlite:///file``, or of a path alone; None for the URL of another database."""
    return Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) or "://" not in url else None


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
        files = [file.name for file in islice(path.parent.iterdir(), _MAX_FILES)]
    except OSError:
        files = []
    near = nearest_names(path.name, files)
    meant = f" (did you mean {visible(str(path.with_name(near[0])))}?)" if near else ""
    raise UsageError(f"there is no database {visible(str(path))}{meant}; correct the path, or create it with --create")
