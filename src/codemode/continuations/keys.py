"""Hold the signing keys of this process, and warn about keys that others lack."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ..options.parts import ContinuationOptions

# A random secret belongs to one process: a forked child makes its own, because the record of its parent's resumes is in
# the parent's memory alone.

SIGNING_KEY_VARIABLE = "CODEMODE_SIGNING_KEY"
DEFAULT_MAX_AGE_MS = 3_600_000
_KEY_BYTES = 32

_configured_keys: tuple[bytes, ...] | None = None
_random_keys: dict[int, tuple[bytes, ...]] = {}  # by process id
_max_age_ms = DEFAULT_MAX_AGE_MS


def set_continuation_signing_key(
    key_or_keys: str | bytes | list[str | bytes] | tuple[str | bytes, ...] | None = None,
    *,
    max_age_ms: int | None = None,
) -> None:
    """Set the secrets of this process: the last one signs, any of them verifies. None: a random one, the default.

    The first one identifies programs that an engine runs again, and stays the first while keys are rotated.
    ``max_age_ms`` is how long a continuation is valid (one hour by default). Raises `ValueError` for an empty key.
    """
    from ..options.parts import ContinuationOptions

    global _configured_keys, _max_age_ms  # noqa: PLW0603 - process-wide settings
    checked = ContinuationOptions(keys=cast("Any", key_or_keys), max_age_ms=max_age_ms)
    _configured_keys = checked.keys
    _random_keys.clear()
    _max_age_ms = checked.max_age_ms if checked.max_age_ms is not None else DEFAULT_MAX_AGE_MS


def get_or_create_process_keys() -> tuple[bytes, ...]:
    """Return the configured secrets, or a random one of this process, created on first use.

    The last one signs, any of them verifies.
    """
    if _configured_keys is not None:
        return _configured_keys
    # Checked each time: some forks do not notify Python. With several threads the first secret is used.
    process = os.getpid()
    return _random_keys.get(process) or _random_keys.setdefault(process, (os.urandom(_KEY_BYTES),))


def get_configured_keys() -> tuple[bytes, ...] | None:
    """Return the configured secrets, None for a random one."""
    return _configured_keys


def read_environment_keys() -> tuple[bytes, ...] | None:
    """Return the keys in the environment variable ``CODEMODE_SIGNING_KEY``, None if it is not set.

    A JSON array has several, for rotation. Raises `ValueError` for an array of other values.
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


def get_random_key() -> bytes | None:
    """Return the random secret of this process if it is in use, else None."""
    keys = None if _configured_keys is not None else _random_keys.get(os.getpid())
    return None if keys is None else keys[-1]


def get_continuation_max_age_ms() -> int:
    """Return how long a continuation holds."""
    return _max_age_ms


_log = logging.getLogger("codemode.continuations")
_has_warned = False
_has_warned_of_random_key = False


def warn_once_if_keyed_guard_unshared(options: ContinuationOptions) -> None:
    """Log a warning once per process if a key is set and the guard is in this process's memory."""
    global _has_warned  # noqa: PLW0603 - once in a process
    is_set = options.keys is not None or get_configured_keys() is not None
    if (
        _has_warned
        or not is_set
        or (options.guard is not None and getattr(options.guard, "is_shared_between_processes", True))
    ):
        return
    _has_warned = True
    _log.warning(
        "a signing key is set, but the record of resumes is in the memory of this process only: another process with"
        " the same key would run an approved call a second time. Give them one store: create_code_mode_tool(tools,"
        " store='sqlite:///pauses.db'), or continuation={'guard': store.guard}"
    )


def warn_once_if_signed_with_random_key(*texts: str | None) -> None:
    """Log a warning once per process if data that outlives it are signed with its random key."""
    global _has_warned_of_random_key  # noqa: PLW0603 - once in a process
    key = None if _has_warned_of_random_key else get_random_key()
    if key is None:
        return
    from .signing import compute_key_id

    name = compute_key_id(key)
    if not any(text is not None and name in text for text in texts):
        return
    _has_warned_of_random_key = True
    _log.warning(
        "a pause that outlives this process is signed with its random key: neither another process nor this one after"
        " a restart can resume it. Give all of them the same key, by"
        " set_continuation_signing_key(...) or continuation={'keys': ...} of the tool's options"
    )
