"""Databases of commands: refused when missing, reported seldom while they are away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
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


DRIVER = "psycopg.pool"  # it tells each of its tries to connect; stores tell once what that means

_PAUSE_SECONDS = 60.0


class Seldom(logging.Filter):
    """Lets a message pass that it has not let pass within the last minute, whatever is filled into it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record passes."""
        form, now = str(record.msg), self._clock()
        if now - self._told.get(form, -_PAUSE_SECONDS) < _PAUSE_SECONDS:
            return False
        self._told[form] = now
        return True


_SELDOM = Seldom()


def tell_seldom() -> None:
    """Let the driver of Postgres say each thing once a minute, in this process."""
    logging.getLogger(DRIVER).addFilter(_SELDOM)
