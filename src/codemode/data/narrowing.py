"""Type guards and defaults for untyped JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

MAX_LOCATION_ROWS = 20_000
ENDS = ("call", "await", "report")


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Tell whether a value is a JSON object, as it is decoded."""
    return isinstance(value, dict)


def is_mapping(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a value is a JSON object, of any mapping class."""
    return type(value) is dict or isinstance(value, Mapping)  # what it nearly always is, at a tenth of the price


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Tell whether a value is a JSON array."""
    return isinstance(value, list)


def is_sequence(value: Any) -> TypeGuard[Sequence[Any]]:
    """Tell whether a value is a JSON array, or a tuple, which is written as one."""
    return isinstance(value, list | tuple)


def is_non_text_iterable(value: Any) -> TypeGuard[Iterable[Any]]:
    """Tell whether a value can be gone through, and is no text."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def mapping_or_empty(value: Any) -> Mapping[Any, Any]:
    """``value`` when it is a JSON object, else an empty one."""
    return value if type(value) is dict or isinstance(value, Mapping) else {}  # pyright: ignore[reportUnknownVariableType]


def list_or_empty(value: Any) -> list[Any]:
    """``value`` when it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def location_rows_or_none(value: Any) -> list[list[int]] | None:
    """Return a list of rows of four positive integers, or None for anything else."""
    if not is_array(value) or not 0 < len(value) <= MAX_LOCATION_ROWS:
        return None
    is_valid = all(
        is_array(row) and len(row) == 4 and all(type(number) is int and 0 < number < 1 << 31 for number in row)
        for row in value
    )
    return value if is_valid else None


def two_counts_or_none(value: Any) -> list[int] | None:
    """``value`` when it is a JSON array of two integers that are not negative, else None."""
    if not is_array(value) or len(value) != 2:
        return None
    return value if all(type(number) is int and 0 <= number < 2**53 for number in value) else None


def string_or_empty(value: Any) -> str:
    """``value`` when it is a string, else an empty one."""
    return value if isinstance(value, str) else ""
