"""What a file or folder must be like so that it is this user's alone. Opens nothing, and is cheap to import."""

from __future__ import annotations

import os
import stat

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
