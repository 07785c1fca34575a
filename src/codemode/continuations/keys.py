"""The secrets with which this process signs continuations, unless an option names others. Signs nothing itself.

A secret that nobody has set belongs to one process: a forked child makes its own, for what its parent resumed is known
in the parent's memory alone.
"""

from __future__ import annotations

import json
import os
from typing import Any, cast

SIGNING_KEY_VARIABLE = "CODEMODE_SIGNING_KEY"
DEFAULT_MAX_AGE_MS = 3_600_000
_KEY_BYTES = 32

_set: tuple[bytes, ...] | None = None
_own: dict[int, tuple[bytes, ...]] = {}  # by process
_max_age_ms = DEFAULT_MAX_AGE_MS


def set_continuation_signing_key(
    key_or_keys: str | bytes | list[str | bytes] | tuple[str | bytes, ...] | None = None,
    *,
    max_age_ms: int | None = None,
) -> None:
    """Set the secrets of this process: the last one signs, any of them verifies. None: a random one, as at the start.

    The first one names the programs that an engine runs again, and stays the first while keys are rotated.
    ``max_age_ms`` is how long a continuation holds (one hour by default). Raises `ValueError` for an empty key.
    """
    from ..options.parts import ContinuationOptions

    global _set, _max_age_ms  # noqa: PLW0603 - process-wide settings
    checked = ContinuationOptions(keys=cast("Any", key_or_keys), max_age_ms=max_age_ms)
    _set = checked.keys
    _own.clear()
    _max_age_ms = checked.max_age_ms if checked.max_age_ms is not None else DEFAULT_MAX_AGE_MS


def process_keys() -> tuple[bytes, ...]:
    """Return the secrets: the last one signs, any of them verifies."""
    if _set is not None:
        return _set
    # Asked for each time: not every fork tells Python of itself. Of several threads the first one's is taken.
    process = os.getpid()
    return _own.get(process) or _own.setdefault(process, (os.urandom(_KEY_BYTES),))


def set_keys() -> tuple[bytes, ...] | None:
    """Return the secrets if somebody has set them, None for a random one."""
    return _set


def environment_keys() -> tuple[bytes, ...] | None:
    """Return the keys that the environment has in ``CODEMODE_SIGNING_KEY``, None where it has none.

    A JSON array has several, as while keys are rotated. Raises `ValueError` for an array of anything but keys.
    """
    from ..options.parts import ContinuationOptions

    text = os.environ.get(SIGNING_KEY_VARIABLE)
    if not text:
        return None
    found: Any = text
    if text.startswith("["):
        try:
            found = json.loads(text)
        except ValueError:
            found = text
        if not isinstance(found, str) and (not found or not all(isinstance(key, str) and key for key in found)):
            raise ValueError(
                f"{SIGNING_KEY_VARIABLE} is an array, and not one of keys: each must be a non-empty string"
            )
    return ContinuationOptions(keys=cast("Any", found)).keys


def own_key() -> bytes | None:
    """Return the random secret of this process where it is in use, None where one was set or none was needed yet."""
    found = None if _set is not None else _own.get(os.getpid())
    return None if found is None else found[-1]


def process_max_age_ms() -> int:
    """Return how long a continuation holds."""
    return _max_age_ms
