"""Databases of commands: refused when missing, reported seldom while they are away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from ..data.similar_names import find_nearest_names
from ..trace.visible_text import escape_invisible
from .exits import UsageError

_SQLITE = "sqlite:///"
_MAX_LISTED_FILES = 1_000


def get_sqlite_path(url: str) -> Path | None:
    """Return the path of ``sqlite:///file`` or of a plain path; None for the URL of another database."""
    return Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) or "://" not in url else None


def require_existing_sqlite_file(url: str, *, create: bool) -> None:
    """Raise `UsageError` for a SQLite file that does not exist: a mistyped path would make an empty one.

    Other databases say themselves that they do not exist.
    """
    path = get_sqlite_path(url)
    if path is None or create:
        return
    try:
        if path.exists():
            return
        files = [file.name for file in islice(path.parent.iterdir(), _MAX_LISTED_FILES)]
    except OSError:
        files = []
    similar_names = find_nearest_names(path.name, files)
    suggestion = f" (did you mean {escape_invisible(str(path.with_name(similar_names[0])))}?)" if similar_names else ""
    raise UsageError(
        f"there is no database {escape_invisible(str(path))}{suggestion}; correct the path, or create it with --create"
    )


POSTGRES_LOGGER = "psycopg.pool"  # it tells each of its tries to connect; stores tell once what that means

_THROTTLE_SECONDS = 60.0


class LogThrottle(logging.Filter):
    """Passes a message unless it has passed within the last minute, with any arguments."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._logged_at_by_message: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record passes."""
        message, now = str(record.msg), self._clock()
        if now - self._logged_at_by_message.get(message, -_THROTTLE_SECONDS) < _THROTTLE_SECONDS:
            return False
        self._logged_at_by_message[message] = now
        return True


_LOG_THROTTLE = LogThrottle()


def throttle_postgres_log() -> None:
    """Limit each message of the Postgres driver in this process to one a minute."""
    logging.getLogger(POSTGRES_LOGGER).addFilter(_LOG_THROTTLE)
