"""Checks of single values of a configuration: each takes a value and its path, and gives what is stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from .jsonc import HALF
from .mistakes import MistakeError, inside, near, one_of

Check = Callable[[Any, str], Any]

LONGEST_MS = 7 * 24 * 60 * 60 * 1_000
MAX_TEXT = 64 * 1024
MAX_ITEMS = 4_096


def a_text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise MistakeError(path, f"this must be a string, not {kind_of(value)}")
    if len(value) > MAX_TEXT:
        raise MistakeError(path, f"this text is longer than {MAX_TEXT:,} characters")
    if "\0" in value or HALF.search(value):
        raise MistakeError(path, "this text holds a NUL, or half of a character")
    return value


def some_text(value: Any, path: str) -> str:
    if not a_text(value, path).strip():
        raise MistakeError(path, "this must not be empty")
    return value


def a_flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise MistakeError(path, f"this must be true or false, not {kind_of(value)}")
    return value


def a_flag_or_null(value: Any, path: str) -> bool | None:
    return None if value is None else a_flag(value, path)


def a_number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise MistakeError(path, "this must be a number above 0")
    return value


def whole(least: int, most: int) -> Check:
    def check(value: Any, path: str) -> int:
        if type(value) is not int or not least <= value <= most:
            raise MistakeError(path, f"this must be a whole number from {least} to {most:,}")
        return value

    return check


def choice(names: tuple[str, ...]) -> Check:
    def check(value: Any, path: str) -> str:
        if not isinstance(value, str) or value not in names:
            # What was written is not repeated: it may be a value that slipped in from another place.
            question = near(value, names) if isinstance(value, str) else ""
            raise MistakeError(path, f"this must be {one_of(names)}{question}")
        return value

    return check


def an_object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise MistakeError(path, f"this must be an object, not {kind_of(value)}")
    found = cast("Mapping[Any, Any]", value)
    if len(found) > MAX_ITEMS:
        raise MistakeError(path, f"this has more than {MAX_ITEMS:,} keys")
    if not all(isinstance(key, str) for key in found):
        raise MistakeError(path, "the keys of this must be strings")
    return cast("Mapping[str, Any]", found)


def a_list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise MistakeError(path, f"this must be an array, not {kind_of(value)}")
    found = list(cast("list[Any]", value))
    if len(found) > MAX_ITEMS:
        raise MistakeError(path, f"this has more than {MAX_ITEMS:,} entries")
    return found


def texts(value: Any, path: str) -> tuple[str, ...]:
    """Return the strings of an array; numbers and booleans, which a server gets as text anyhow, as such."""
    return tuple(as_text(one, f"{path}[{index}]") for index, one in enumerate(a_list(value, path)))


def names(value: Any, path: str) -> tuple[str, ...]:
    return tuple(some_text(one, f"{path}[{index}]") for index, one in enumerate(a_list(value, path)))


def as_text(value: Any, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else a_text(value, path)


def only(known: Mapping[str, Check], value: Any, path: str) -> dict[str, Any]:
    """Return the object with each of its keys checked. Raises `MistakeError` with the full path of an unknown one."""
    found = an_object(value, path)
    for key in found:
        if key not in known:
            raise MistakeError(inside(path, key), f"there is no such key{near(key, known)}")
    return {key: known[key](one, inside(path, key)) for key, one in found.items()}


def kind_of(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "a boolean"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, int | float):
        return "a number"
    return "an object" if isinstance(value, Mapping) else "an array"
