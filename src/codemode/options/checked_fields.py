"""Validators of option fields: each takes a value and its path, and returns the value."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import field
from functools import cache, partial
from itertools import pairwise
from typing import Any, cast

KEY_COMMAND = 'python -c "import secrets; print(secrets.token_urlsafe(32))"'
"""A shell command that creates a random key."""

_MIN_DISTINCT_BYTES = 7
"""A random key of 32 hexadecimal digits has fewer with a probability of 1 in 60,000; other random texts never."""
_MAX_CHECKED_BYTES = 256
# Letters and digits of a key only: common placeholders, and the words in our examples.
_PLACEHOLDER_WORDS = re.compile(
    rb"(?:change|replace)(?:me|this|it)|placeholder|your(?:secret|signing|key)|randomcharacters"
)
_EXAMPLE_WORDS = re.compile(rb"^32bytes|randombytes|onlyforthisexample")
_NON_WORD = re.compile(rb"[^a-z0-9]+")


def is_placeholder_key(key: bytes) -> bool:
    """Return whether a key is a placeholder: few distinct bytes, a repeated text, digits in a row or such words."""
    head = key[:_MAX_CHECKED_BYTES]
    if len(set(head)) < _MIN_DISTINCT_BYTES or _PLACEHOLDER_WORDS.search(_strip_separators(head)):
        return True
    consecutive = sum(after - before == 1 for before, after in pairwise(head))
    return consecutive * 4 >= len(head) * 3 or any(
        head.startswith(head[length:]) for length in range(1, len(head) // 2 + 1)
    )


def is_example_key(key: bytes) -> bool:
    """Return whether a key is from our documentation or examples."""
    return _EXAMPLE_WORDS.search(_strip_separators(key[:_MAX_CHECKED_BYTES])) is not None


def _strip_separators(key: bytes) -> bytes:
    return _NON_WORD.sub(b"", key.lower())


Check = Callable[[Any, str], Any]
MIN_KEY_BYTES = 16
"""The length of a signing key below which a warning is logged."""


class WrongTypeError(ValueError, TypeError):
    """A value of the wrong type: a `ValueError`, as every invalid argument, and a `TypeError`."""


def positive_limit_field(
    default: int,
    maximum: int | None = None,
    *,
    minimum: int = 1,
    is_sent_to_worker: bool = False,
    is_signed: bool = False,
) -> int:
    return option_field(
        default,
        partial(require_positive, maximum=maximum, minimum=minimum),
        is_sent_to_worker=is_sent_to_worker,
        is_signed=is_signed,
    )


def optional_limit_field() -> int | None:
    return option_field(None, _require_positive_or_none)


def option_field(default: Any, check: Check, *, is_sent_to_worker: bool = False, is_signed: bool = False) -> Any:
    """Declare an option. ``is_sent_to_worker``: the worker needs it; ``is_signed``: a continuation keeps its value."""
    return field(
        default=default, metadata={"check": check, "is_sent_to_worker": is_sent_to_worker, "is_signed": is_signed}
    )


def flag_field(*, default: bool, is_signed: bool = False) -> bool:
    return option_field(default, _require_bool, is_signed=is_signed)


def _require_positive_or_none(value: Any, path: str) -> int | None:
    return None if value is None else require_positive(value, path)


def require_positive(value: Any, path: str, maximum: int | None = None, minimum: int = 1) -> int:
    # bool is an int to Python, never to a reader of options.
    if type(value) is not int or value < 1:
        raise ValueError(f"{path} must be a positive integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{path} must be at least {minimum}, got {value}")
    if maximum is not None and value > maximum:
        raise ValueError(f"{path} must be at most {maximum}, got {value}")
    return value


def require_not_negative(value: Any, path: str) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{path} must be an integer of at least 0, got {value!r}")
    return value


def require_count_or_clamp(value: Any, path: str) -> int:
    return 0 if type(value) is int and value < 0 else require_not_negative(value, path)


def _require_bool(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{path} must be True or False, got {value!r}")  # noqa: TRY004 - every wrong option is one
    return value


def require_callable_or_none(value: Any, path: str) -> Any:
    if value is not None and not callable(value):
        raise ValueError(f"{path} must be a function or None, got {value!r}")
    return value


CALLABLE = {"check": require_callable_or_none}


def require_nonempty_string_or_none(value: Any, path: str) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError(f"{path} must be a non-empty string or None, got {value!r}")
    return value


def require_string_or_none(value: Any, path: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise WrongTypeError(f"{path} must be a string or None, got {value!r}")


def require_sequence(value: Any, path: str) -> Any:
    sequence_value: Any = value
    is_plain = type(value) is tuple or type(value) is list
    if is_plain or (isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)):
        return sequence_value
    raise WrongTypeError(f"{path} must be a list, got {value!r}")


def require_state_backend_or_none(value: Any, path: str) -> Any:
    is_state_store = all(callable(getattr(value, name, None)) for name in ("get", "set", "delete", "keys"))
    if (
        value is not None
        and value is not False
        and not (isinstance(value, MutableMapping) or is_state_store or callable(value))
    ):
        raise ValueError(f"{path} must be a mapping, a function, or have get, set, delete and keys, got {value!r}")
    return cast("Any", value)


def make_methods_or_none_check(*methods: str) -> Check:
    """Return a check for None, or an object with these methods."""

    def check(value: Any, path: str) -> Any:
        if value is not None and not all(callable(getattr(value, name, None)) for name in methods):
            raise ValueError(f"{path} must be None or have the methods {', '.join(methods)}, got {value!r}")
        return value

    return check


def require_resume_guard_or_none(value: Any, path: str) -> Any:
    """Return a guard or None. A store has methods of the same names with other meanings."""
    if callable(getattr(value, "settle", None)):
        raise WrongTypeError(f"{path} must be the guard of the store, not the store: write store.guard")
    return make_methods_or_none_check("claim", "record", "release")(value, path)


def require_mapping_or_none(value: Any, path: str) -> Any:
    if value is None or isinstance(value, Mapping):
        return cast("Any", value)
    raise ValueError(f"{path} must be a mapping or None, got {value!r}")


def require_strings(value: Any, path: str) -> tuple[str, ...]:
    items = cast("list[Any]", [*value]) if isinstance(value, list | tuple | set | frozenset) else None
    if items is None or not all(isinstance(item, str) and item for item in items):
        raise ValueError(f"{path} must be a list of non-empty strings, got {value!r}")
    return tuple(items)


def require_strings_and_uppercase(value: Any, path: str) -> tuple[str, ...]:
    return tuple(method.upper() for method in require_strings(value, path))


def require_command_or_none(value: Any, path: str) -> tuple[str, ...] | None:
    if value is not None and not value:
        raise ValueError(f"{path} must not be empty")
    return None if value is None else require_strings(value, path)


def require_signing_keys_or_none(value: Any, path: str) -> tuple[bytes, ...] | None:
    if value is None:
        return None
    items = cast("list[Any]", [*value]) if isinstance(value, list | tuple) else [value]
    if not items or not all(isinstance(item, str | bytes) and item for item in items):
        # The value is a secret and stays out of the message.
        raise ValueError(f"{path} must be a non-empty string or bytes, or a list of them")
    keys = tuple(item.encode() if isinstance(item, str) else item for item in items)
    if min(map(len, keys)) < MIN_KEY_BYTES:
        _warn_short_key()
    elif any(is_placeholder_key(key) or is_example_key(key) for key in keys):
        _warn_guessable_key()
    return keys


@cache
def _warn_short_key() -> None:
    # No error: continuations that were signed with such a key would be lost.
    logging.getLogger("codemode.continuations").warning(
        "a signing key has fewer than %d bytes and could be guessed to forge approvals. Use 32 random bytes, the same"
        " for all processes: %s",
        MIN_KEY_BYTES,
        KEY_COMMAND,
    )


@cache
def _warn_guessable_key() -> None:
    logging.getLogger("codemode.continuations").warning(
        "a signing key is an example or has few distinct characters, and could be guessed to forge approvals. Use 32"
        " random bytes, the same for all processes: %s",
        KEY_COMMAND,
    )


def make_choice_check(*choices: str | None) -> Check:
    def check(value: Any, path: str) -> Any:
        if value not in choices:
            raise ValueError(f"{path} must be one of {', '.join(map(repr, choices))}, got {value!r}")
        return value

    return check
