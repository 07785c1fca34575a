"""Files of the gateway's state: whether they are only the user's, and the removal of unused ones."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from codemode.host.threads import Errands

_HAS_OWNERS = hasattr(os, "getuid")


def not_private(found: os.stat_result) -> str | None:
    """Return why a file may be somebody else's doing, or known to them, with the way out; None where it is not."""
    if not stat.S_ISREG(found.st_mode):
        return "it is no regular file: remove it"
    if _HAS_OWNERS and found.st_uid != os.getuid():
        return "it belongs to another user: remove it"
    if _HAS_OWNERS and found.st_mode & 0o077:
        return "others than its owner may use it: set its mode to 600"
    return None


def folder_not_private(found: os.stat_result) -> str | None:
    """Return why others may put files into a folder, with the way out; None where they may not."""
    if _HAS_OWNERS and found.st_uid not in (os.getuid(), 0):
        return "its folder belongs to another user: name one of your own (XDG_STATE_HOME)"
    if _HAS_OWNERS and found.st_mode & 0o022:
        return "others may write to its folder: set the mode of that to 700"
    return None


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
