"""Warns of a signing key that other processes may share while nobody else sees what was resumed with it."""

from __future__ import annotations

import logging

from ..options.parts import ContinuationOptions
from .keys import set_keys

_log = logging.getLogger("codemode.continuations")
_has_warned = False


def warn_if_unshared(options: ContinuationOptions) -> None:
    """Log a warning, once in a process, when a key was set and the guard is in this process's memory."""
    global _has_warned  # noqa: PLW0603 - once in a process
    is_set = options.keys is not None or set_keys() is not None
    if (
        _has_warned
        or not is_set
        or (options.guard is not None and getattr(options.guard, "sees_other_processes", True))
    ):
        return
    _has_warned = True
    _log.warning(
        "a signing key is set, but what was resumed is kept in the memory of this process alone: another process with"
        " the same key would run an approved call a second time. Give them one guard that all of them see, for instance"
        " continuation={'guard': SqliteResumeGuard(path)}"
    )
