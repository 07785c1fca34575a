"""Files of the state folder that nobody has used for long: when they are looked for. Removes none itself."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from codemode.host.threads import Errands

UNUSED_SECONDS = 90 * 86_400.0
"""So long nobody has used what is removed: users who are gone, and configurations that nobody has any more."""
_BETWEEN_SECONDS = 86_400.0
_log = logging.getLogger("codemode.mcp")
_looked: dict[Path, float] = {}


def is_unused(found: os.stat_result, seconds: float = UNUSED_SECONDS) -> bool:
    """Tell whether nobody has used a file for so long."""
    return time.time() - found.st_mtime > seconds


def note_use(descriptor: int, path: Path) -> None:
    """Keep for the others of the folder that this file, which is open, was used now. A file of others stays as it is.

    Once a day is enough: each time is a write.
    """
    with suppress(OSError):
        if is_unused(os.fstat(descriptor), _BETWEEN_SECONDS):
            os.utime(descriptor if os.utime in os.supports_fd else path)


def look_soon(folder: Path, remove: Callable[[Path], None]) -> None:
    """Have ``remove`` look through the folder in a thread, once a day in each process that adds to it.

    What adds to a folder so keeps it from growing for ever. Nobody waits for it, and what cannot be removed stays.
    """
    now = time.monotonic()
    if now - _looked.get(folder, -_BETWEEN_SECONDS) < _BETWEEN_SECONDS:
        return
    _looked[folder] = now

    def look() -> None:
        try:
            remove(folder)
        except OSError as error:
            _log.info("unused files of %s cannot be removed: %s", folder, error.strerror)

    Errands("codemode-unused", 1, idle_seconds=0).send(look)
