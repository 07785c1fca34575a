"""Keep integers beyond 2^53 exact in JSON that passes through a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, cast

from .narrowing import is_array, is_object, is_sequence
from .plain_json import MAX_INT_DIGITS

POINTERS_KEY = "bigIntegers"
"""The key of the list of JSON pointers to integers written as text."""

MAX_EXACT_INTEGER = 2**53
"""The largest integer up to which JavaScript numbers are exact."""

_MIN_EXPONENT_NUMBER = 1e21  # from here on, browsers write exponents
_INTEGER = re.compile(rf"-?[0-9]{{1,{MAX_INT_DIGITS}}}")
# After a character that may precede a number in JSON without spaces.
_LONG_INTEGER_CLASSES = b":" + b"0" * 16
_BYTE_CLASSES = bytes(48 if 48 <= byte <= 57 else 58 if byte in b"[,:-" else 32 for byte in range(256))
_Path = tuple[str | int, ...]
_NOT_GIVEN = object()


def protect_integers(value: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object with such integers as text, and their JSON pointers under `POINTERS_KEY`, if any."""
    try:
        text = json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return value  # not JSON: not created by a host
    if _LONG_INTEGER_CLASSES not in text.encode().translate(_BYTE_CLASSES):
        return value
    paths = list(_find_inexact_integer_paths(value))
    if not paths:
        return value
    plain = json.loads(text)
    for path in paths:
        holder: Any = _get_value_at(plain, path[:-1])
        holder[path[-1]] = str(holder[path[-1]])
    return {**plain, POINTERS_KEY: ["".join(map(_format_pointer_token, path)) for path in paths]}


def restore_integers(value: Any, original: Any = _NOT_GIVEN) -> Any:
    """Return JSON that came through a browser with its integers restored.

    ``original`` is the JSON that was displayed and edited; without it the value is a result of `protect_integers`.
    Raises `ValueError` for wrong pointers, and for an integer that a browser changed.
    """
    return restore_listed_integers(value) if original is _NOT_GIVEN else restore_edited_integers(original, value)


def restore_listed_integers(value: dict[str, Any]) -> dict[str, Any]:
    """Undo `protect_integers`. Raises `ValueError` for wrong pointers."""
    if POINTERS_KEY not in value:
        return value
    pointers = value[POINTERS_KEY]
    if not is_array(pointers) or not all(isinstance(pointer, str) for pointer in pointers):
        raise ValueError(f"{POINTERS_KEY} must be a list of JSON pointers")
    plain = json.loads(json.dumps({key: item for key, item in value.items() if key != POINTERS_KEY}))
    for pointer in dict.fromkeys(cast("list[str]", pointers)):
        path = _parse_pointer(pointer)
        if not _replace_text_with_integer(plain, path):
            raise ValueError(f"{POINTERS_KEY} names {pointer[:100]!r}, where no integer is written as text")
    return plain


def restore_edited_integers(original: Any, edited: Any) -> Any:
    """Return an edited value with integers restored where ``original`` has an integer beyond 2^53 and it has its text.

    Raises `ValueError` where it has the number that a browser makes of such an integer, as the intention is ambiguous.
    """
    paths = list(_find_inexact_integer_paths(original))
    if not paths:
        return edited
    holder = json.loads(json.dumps([edited]))
    for path in paths:
        if not _replace_text_with_integer(holder, (0, *path)):
            old, new = _get_value_at(original, path), _get_value_at(holder, (0, *path))
            if type(new) in (int, float) and new != old and to_browser_number(new) == _round_like_browser(old):
                raise ValueError(f"{old} became {new}, as in a browser: send it as text")
    return holder[0]


def to_browser_number(number: float) -> float:
    """Return the integer as which a browser writes a large float: the fewest digits, then zeros."""
    if not isinstance(number, float) or not MAX_EXACT_INTEGER < abs(number) < _MIN_EXPONENT_NUMBER:
        return number
    from decimal import Decimal

    return int(Decimal(repr(number)))


def _round_like_browser(integer: int) -> float | None:
    try:
        return to_browser_number(float(integer))
    except OverflowError:
        return None


def is_beyond_exact_range(value: object) -> bool:
    """Return True for an integer that a JavaScript number need not hold exactly."""
    return isinstance(value, int) and not -MAX_EXACT_INTEGER <= value <= MAX_EXACT_INTEGER


def _find_inexact_integer_paths(value: Any) -> Iterable[_Path]:
    pending: list[tuple[_Path, Any]] = [((), value)]
    while pending:
        path, item = pending.pop()
        if is_object(item):
            pending.extend(((*path, key), child) for key, child in item.items())
        elif is_sequence(item):
            pending.extend(((*path, index), child) for index, child in enumerate(item))
        elif is_beyond_exact_range(item):
            yield path


def _replace_text_with_integer(value: Any, path: _Path) -> bool:
    """Convert the text at a path to an integer; False if there is no such text."""
    holder: Any = _get_value_at(value, path[:-1]) if path else None
    key = _find_key(holder, path[-1]) if path else None
    if key is None:
        return False
    text = holder[key]
    if not isinstance(text, str) or not _INTEGER.fullmatch(text):
        return False
    holder[key] = int(text)
    return True


def _get_value_at(value: Any, path: _Path) -> Any:
    for step in path:
        key = _find_key(value, step)
        if key is None:
            return None
        value = value[key]
    return value


def _find_key(holder: Any, step: str | int) -> Any:
    if is_object(holder):
        return step if step in holder else None
    if not is_array(holder):
        return None
    if isinstance(step, str):
        step = int(step) if step.isascii() and step.isdigit() and len(step) < 10 else -1
    return step if 0 <= step < len(holder) else None


def _format_pointer_token(step: str | int) -> str:
    return "/" + str(step).replace("~", "~0").replace("/", "~1")


def _parse_pointer(pointer: str) -> _Path:
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
