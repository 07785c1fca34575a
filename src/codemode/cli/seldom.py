"""What a driver says over and over while its database is away, told by the command line no more than once a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

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
