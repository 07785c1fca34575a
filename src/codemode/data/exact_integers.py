"""Integers beyond 2^53 in JSON that goes through a browser, which would change them: text, with a list of their places.

A place is a JSON pointer. Knows nothing of what the JSON says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, cast

from .narrowing import is_array, is_object, is_sequence
from .plain_json import MAX_INT_DIGITS

PLACES_KEY = "bigIntegers"
"""The key beside such values under which their places are listed."""

MAX_EXACT = 2**53
"""The last integer up to which a JavaScript number is exact."""

_FIRST_EXPONENT = 1e21  # from here on browsers write numbers with one
_INTEGER = re.compile(rf"-?[0-9]{{1,{MAX_INT_DIGITS}}}")
# Behind what may stand before a number, in JSON without spaces.
_LONG_INTEGER = b":" + b"0" * 16
_SHAPES = bytes(48 if 48 <= byte <= 57 else 58 if byte in b"[,:-" else 32 for byte in range(256))
_Path = tuple[str | int, ...]
_NOTHING = object()


def protect_integers(value: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object with such integers as text, and their places under `PLACES_KEY` if there are any."""
    try:
        text = json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return value  # no JSON: of no host's making
    if _LONG_INTEGER not in text.encode().translate(_SHAPES):
        return value
    paths = list(_long_integers(value))
    if not paths:
        return value
    plain = json.loads(text)
    for path in paths:
        holder: Any = _at(plain, path[:-1])
        holder[path[-1]] = str(holder[path[-1]])
    return {**plain, PLACES_KEY: ["".join(map(_step_text, path)) for path in paths]}


def restore_integers(value: Any, shown: Any = _NOTHING) -> Any:
    """Return JSON that came through a browser with its integers as they were.

    ``shown`` is the JSON that somebody was shown and edited. Without it the value is what `protect_integers` returned.
    Raises `ValueError` for places that are wrong, and for an integer that a browser changed.
    """
    return restore_listed_integers(value) if shown is _NOTHING else restore_edited_integers(shown, value)


def restore_listed_integers(value: dict[str, Any]) -> dict[str, Any]:
    """Return what `protect_integers` was given; the same without places. Raises `ValueError` for wrong places."""
    if PLACES_KEY not in value:
        return value
    places = value[PLACES_KEY]
    if not is_array(places) or not all(isinstance(place, str) for place in places):
        raise ValueError(f"{PLACES_KEY} must be a list of JSON pointers")
    plain = json.loads(json.dumps({key: item for key, item in value.items() if key != PLACES_KEY}))
    for place in dict.fromkeys(cast("list[str]", places)):
        path = _path_of(place)
        if not _make_integer(plain, path):
            raise ValueError(f"{PLACES_KEY} names {place[:100]!r}, where no integer is written as text")
    return plain


def restore_edited_integers(shown: Any, edited: Any) -> Any:
    """Return an edited value with integers where it has their text, and ``shown`` an integer beyond 2^53.

    Raises `ValueError` where it has what a browser makes of such an integer, and nobody can tell which is meant.
    """
    paths = list(_long_integers(shown))
    if not paths:
        return edited
    holder = json.loads(json.dumps([edited]))
    for path in paths:
        if not _make_integer(holder, (0, *path)):
            was, now = _at(shown, path), _at(holder, (0, *path))
            if type(now) in (int, float) and now != was and as_browsers_write(now) == _rounded(was):
                raise ValueError(f"{was} became {now}, as in a browser: send it as text")
    return holder[0]


def as_browsers_write(number: float) -> float:
    """Return the integer as which a browser writes a large float: the fewest digits, and zeros."""
    if not isinstance(number, float) or not MAX_EXACT < abs(number) < _FIRST_EXPONENT:
        return number
    from decimal import Decimal

    return int(Decimal(repr(number)))


def _rounded(integer: int) -> float | None:
    try:
        return as_browsers_write(float(integer))
    except OverflowError:
        return None


def is_long(value: object) -> bool:
    """Return True for an integer that a JavaScript number need not hold exactly."""
    return isinstance(value, int) and not -MAX_EXACT <= value <= MAX_EXACT


def _long_integers(value: Any) -> Iterable[_Path]:
    pending: list[tuple[_Path, Any]] = [((), value)]
    while pending:
        path, item = pending.pop()
        if is_object(item):
            pending.extend(((*path, key), child) for key, child in item.items())
        elif is_sequence(item):
            pending.extend(((*path, index), child) for index, child in enumerate(item))
        elif is_long(item):
            yield path


def _make_integer(value: Any, path: _Path) -> bool:
    """Make the text at a place the integer that it says; False where there is none."""
    holder: Any = _at(value, path[:-1]) if path else None
    key = _key_in(holder, path[-1]) if path else None
    if key is None:
        return False
    text = holder[key]
    if not isinstance(text, str) or not _INTEGER.fullmatch(text):
        return False
    holder[key] = int(text)
    return True


def _at(value: Any, path: _Path) -> Any:
    for step in path:
        key = _key_in(value, step)
        if key is None:
            return None
        value = value[key]
    return value


def _key_in(holder: Any, step: str | int) -> Any:
    if is_object(holder):
        return step if step in holder else None
    if not is_array(holder):
        return None
    if isinstance(step, str):
        step = int(step) if step.isascii() and step.isdigit() and len(step) < 10 else -1
    return step if 0 <= step < len(holder) else None


def _step_text(step: str | int) -> str:
    return "/" + str(step).replace("~", "~0").replace("/", "~1")


def _path_of(pointer: str) -> _Path:
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
