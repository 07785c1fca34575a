"""Warns of signing keys: one that others may share who do not see what was resumed, and one that nobody shares."""

from __future__ import annotations

import logging

from ..options.parts import ContinuationOptions
from .keys import own_key, set_keys
from .signing import key_id

_log = logging.getLogger("codemode.continuations")
_has_warned = False
_has_warned_of_own = False


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
        " the same key would run an approved call a second time. Give them one store: create_code_mode_tool(tools,"
        " store='sqlite:///pauses.db'), or continuation={'guard': store.guard}"
    )


def warn_if_own(*texts: str | None) -> None:
    """Log a warning, once in a process, when what is to outlive it is signed with the random key that it alone has."""
    global _has_warned_of_own  # noqa: PLW0603 - once in a process
    key = None if _has_warned_of_own else own_key()
    if key is None:
        return
    name = key_id(key)
    if not any(text is not None and name in text for text in texts):
        return
    _has_warned_of_own = True
    _log.warning(
        "a pause that is kept beyond this process is signed with the random key of this process: no other one can go"
        " on with it, nor this program once it is started anew. Give all of them the same key, by"
        " set_continuation_signing_key(...) or continuation={'keys': ...} of the tool's options"
    )
