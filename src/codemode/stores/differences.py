"""The difference between two JSON values, of bounded size. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from ..data.json_values import canonical_json
from ..data.narrowing import is_array, is_object
from ..host import steps

MOST_PLACES = 50
_PLACE_CHARACTERS = 200
_VALUE_CHARACTERS = 200
_ABSENT: Any = object()


def differences(before: Any, after: Any) -> list[dict[str, Any]]:
    """Return what differs, at most `MOST_PLACES`: ``path``, a JSON pointer, with ``from`` and ``to``.

    What was added has no ``from``, what was left out no ``to``. Of a long value there are ``from_start`` or
    ``to_start``, the beginning of its JSON, and ``from_digest`` or ``to_digest`` instead. Where there is more, an entry
    ``{"more": True}`` ends the list.
    """
    found: list[dict[str, Any]] = []
    for path, was, now in _places(before, after):
        if len(found) == MOST_PLACES:
            return [*found, {"more": True}]
        found.append({"path": path, **_told("from", was), **_told("to", now)})
    return found


def _places(before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    # A stack of its own: the values nest as deeply as JSON may.
    left: list[tuple[str, Any, Any]] = [("", before, after)]
    while left:
        steps.take()
        path, was, now = left.pop()
        members = _members(was, now)
        if members is not None:
            left += [(_below(path, name), *pair) for name, *pair in reversed(members)]
        elif not _is_same(was, now):
            yield path, was, now


def _members(was: Any, now: Any) -> list[tuple[str, Any, Any]] | None:
    if is_object(was) and is_object(now):
        names = dict.fromkeys((*was, *now))
        return [(name, was.get(name, _ABSENT), now.get(name, _ABSENT)) for name in names]
    if is_array(was) and is_array(now):
        longest = max(len(was), len(now))
        return [(str(at), _item(was, at), _item(now, at)) for at in range(longest)]
    return None


def _item(items: list[Any], at: int) -> Any:
    return items[at] if at < len(items) else _ABSENT


def _is_same(was: Any, now: Any) -> bool:
    return type(was) is type(now) and was == now  # True is 1 elsewhere


def _below(path: str, name: str) -> str:
    if len(path) >= _PLACE_CHARACTERS:
        return path
    below = f"{path}/{name[:_PLACE_CHARACTERS].replace('~', '~0').replace('/', '~1')}"
    return below if len(below) <= _PLACE_CHARACTERS else f"{below[: _PLACE_CHARACTERS - 3]}..."


def _told(which: str, value: Any) -> dict[str, Any]:
    if value is _ABSENT:
        return {}
    text = canonical_json(value)
    if len(text) <= _VALUE_CHARACTERS:
        return {which: value}
    return {f"{which}_start": text[:_VALUE_CHARACTERS], f"{which}_digest": hashlib.sha256(text.encode()).hexdigest()}
