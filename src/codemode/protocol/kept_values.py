"""Values of a continuation, each checked to be what it was when it was written. Pure.

All raise `CodeModeProtocolError` for anything else.
"""

from __future__ import annotations

from typing import Any

from ..data.narrowing import is_array, is_object
from ..errors import CodeModeProtocolError


def read_object(value: object, keys: set[str]) -> dict[str, Any]:
    """Return an object that has exactly these keys."""
    body = read_mapping(value)
    if set(body) != keys:
        raise CodeModeProtocolError("the continuation is malformed")
    return body


def read_mapping(value: object) -> dict[str, Any]:
    """Return an object."""
    if not is_object(value):
        raise CodeModeProtocolError("the continuation is malformed")
    return value


def read_items(value: object) -> list[Any]:
    """Return a list."""
    if not is_array(value):
        raise CodeModeProtocolError("the continuation is malformed")
    return value


def read_text(value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise CodeModeProtocolError("the continuation holds a value that is not text")
    return value


def read_texts(value: object) -> list[str]:
    """Return a list of texts."""
    return [read_text(item) for item in read_items(value)]


def read_positive(value: object) -> int:
    """Return a whole number above 0."""
    if type(value) is not int or value < 1:
        raise CodeModeProtocolError("the continuation holds a value that is not a positive number")
    return value


def read_count(value: object) -> int:
    """Return a whole number from 0."""
    if type(value) is not int or value < 0:
        raise CodeModeProtocolError("the continuation holds a value that is not a count")
    return value


def read_flag(value: object) -> bool:
    """Return a boolean."""
    if not isinstance(value, bool):
        raise CodeModeProtocolError("the continuation holds a value that is neither true nor false")
    return value


def read_optional_text(value: object) -> str | None:
    """Return a text, or None."""
    return None if value is None else read_text(value)


def read_optional_positive(value: object) -> int | None:
    """Return a whole number above 0, or None."""
    return None if value is None else read_positive(value)
