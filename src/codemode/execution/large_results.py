"""What a model reads of printed lines and of results that are too large for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..data.narrowing import is_array, is_mapping
from ..trace.visible_text import clip_text, format_count, visible

if TYPE_CHECKING:
    from ..trace.events import ConsoleEvent


MAX_CONSOLE_CHARACTERS = 4000
_BEGINNING = 1000  # of what is too long; the rest of the room is for its end, which says most of a failure
_MARK_CHARACTERS = 60
_KEPT = "\n\t"
_LAST_CHARACTERS = 300
_LAST_CALL = re.compile(r"(?:^|[\n;}])[ \t]*(?:void )?([A-Za-z_$][\w$]{0,80})\(\)(?:\.catch\([\w$.]{0,80}\))?$")


def printed(console: Sequence[ConsoleEvent]) -> str:
    """Return what a program printed as plain text, at most 4,000 characters: of more its beginning and its end."""
    text = "\n".join(line.text if line.level == "log" else f"[{line.level}] {line.text}" for line in console)
    most = MAX_CONSOLE_CHARACTERS
    if len(text) > 2 * most:  # so that a short text is made visible, and not a long one
        text = _cut(text, most)
    shown = visible(text, keep=_KEPT)
    return shown if len(shown) <= most else _cut(shown, most)


def _cut(text: str, most: int) -> str:
    end = most - _BEGINNING - _MARK_CHARACTERS
    left_out = format_count(len(text) - _BEGINNING - end, "character")
    return f"{text[:_BEGINNING]}\n... ({left_out} left out) ...\n{text[-end:]}"


def unreturned_call(js: str) -> str | None:
    """Return what to write in place of the last statement of a program that calls its own function and drops it.

    ``async function main() {...} main();`` ends before ``main`` does, and returns nothing.
    """
    end = js.rstrip()[-_LAST_CHARACTERS:].rstrip("; \t\r\n")
    if end.endswith("})()"):
        return "`return await (async () => {...})();`" if "(async" in js else None
    found = _LAST_CALL.search(end)
    if found is None:
        return None
    name = found[1]
    is_own = f"function {name}" in js or f"{name} = async" in js
    return f"`return await {name}();`" if is_own else None


_MAX_BEGINNING = 2000
_MAX_SHAPE = 400
_SHAPE_DEPTH = 4
_SHOWN_DEPTH = 8
_SHOWN_MEMBERS = 20
_SHOWN_TEXT = 200
_SHOWN_KEY = 80
_RETURN_LESS = "Return less: filter, slice, count or aggregate in the program."
_DROPPED = f"The rest was dropped. {_RETURN_LESS}"


def is_beyond(value: Any, most: int, json_bytes: int | None = None) -> bool:
    """Tell whether a result has more than ``most`` characters as a model reads it: text, or compact JSON.

    ``json_bytes`` are those of its JSON, if they are known. Takes as long as ``most`` is large, however large it is.
    """
    if isinstance(value, str):
        return len(value) > most
    if json_bytes is not None and json_bytes <= most:
        return False
    if json_bytes is not None and json_bytes > 4 * most:
        return True  # no character takes more bytes
    return characters_of(value, most) > most


def characters_of(value: Any, most: int) -> int:
    """Count the characters of a value as a model reads it, about; beyond ``most`` no further."""
    if isinstance(value, str):
        return len(value)
    count = 0
    for characters in _characters(value, most):
        count += characters
        if count > most:
            break
    return count


def _characters(value: Any, most: int) -> Iterator[int]:
    """Yield the characters of a value's JSON, piece by piece."""
    pending: list[Iterator[Any]] = [iter((value,))]
    while pending:
        for one in pending[-1]:
            if isinstance(one, str):
                yield len(one) + 3 if len(one) > most else len(json.dumps(one, ensure_ascii=False)) + 1
            elif is_mapping(one):
                yield 3
                pending.append(_members(one))
                break
            elif is_array(one):
                yield 3
                pending.append(iter(one))
                break
            else:
                yield _scalar_characters(one) + 1
        else:
            pending.pop()


def _members(value: Mapping[Any, Any]) -> Iterator[Any]:
    for key, one in value.items():
        yield str(key)
        yield one


def _scalar_characters(value: Any) -> int:
    return value.bit_length() // 3 + 2 if type(value) is int else len(repr(value))


def too_large_text(value: Any, most: int, json_bytes: int | None = None, key: str | None = None) -> str:
    """Return what a model reads in place of such a result: plain text of at most ``most`` characters.

    Its size, its shape, and its beginning, in which whole members are left out and long texts are cut, so that it is
    JSON by itself. ``key`` is where programs find the whole in ``state``; without one the rest is gone.
    """
    if key is None:
        end = _DROPPED
    else:
        end = f"The whole is kept: the next program reads it with `await state.get({json.dumps(key)})`. {_RETURN_LESS}"
    said = f"The result is too large to be shown: {_size(value, json_bytes)}. At most {most:,} characters are."
    room = max(min(most - len(said) - len(end) - _MAX_SHAPE - 100, _MAX_BEGINNING), 0)
    if isinstance(value, str):
        return f"{said}\nIts beginning:\n{value[:room]}\n{end}"
    shape = clip_text(_shape(value, _SHAPE_DEPTH, _MAX_SHAPE), _MAX_SHAPE)
    return f"{said}\nIts shape: {shape}\nIts beginning, shortened:\n{_beginning(value, room)}\n{end}"


def shown_value(value: Any, most: int | None, json_bytes: int | None = None) -> Any:
    """Return a value that a model may read whole, and else the text in its place."""
    if most is None or not is_beyond(value, most, json_bytes):
        return value
    return too_large_text(value, most, json_bytes)


def _size(value: Any, json_bytes: int | None) -> str:
    if isinstance(value, str):
        return format_count(len(value), "character") + " of text"
    what = "a value"
    if is_array(value):
        what = f"an array of {format_count(len(value), 'item')}"
    elif is_mapping(value):
        what = f"an object with {format_count(len(value), 'key')}"
    return what if json_bytes is None else f"{what}, {format_count(json_bytes, 'byte')} of JSON"


def _shape(value: Any, depth: int, most: int) -> str:
    """Return a shape; of what has more than ``most`` characters only the beginning counts."""
    if is_array(value):
        return f"{_shape(value[0], depth - 1, most)}[]" if value and depth else "unknown[]"
    if is_mapping(value):
        if not depth:
            return "object"
        members: list[str] = []
        for key, one in cast("Mapping[Any, Any]", value).items():
            if len(members) == _SHOWN_MEMBERS or most < 0:
                members.append("...")
                break
            name = str(key)[:_SHOWN_KEY]
            member = f"{name if name.isidentifier() else json.dumps(name)}: {_shape(one, depth - 1, most)}"
            members.append(member)
            most -= len(member)
        return "{ " + ", ".join(members) + " }" if members else "{}"
    if value is None:
        return "null"
    return "boolean" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"


def _beginning(value: Any, room: int) -> str:
    """Return JSON of at most ``room`` characters with the first members of a value; nothing where none fits."""
    members = _SHOWN_MEMBERS
    while members:
        text = json.dumps(_Shortened(room, members).of(value, _SHOWN_DEPTH), ensure_ascii=False)
        if len(text) <= room:
            return text
        members //= 2
    return "" if room < len("[...]") else "[...]" if is_array(value) else "{...}"


class _Shortened:
    """Takes the first members of a value, and of those in it, until there is no room."""

    def __init__(self, room: int, members: int) -> None:
        self._room = room
        self._members = members

    def of(self, value: Any, depth: int) -> Any:
        self._room -= 2  # also of what is empty, of which there may be very many
        if isinstance(value, str):
            self._room -= min(len(value), _SHOWN_TEXT)
            return clip_text(value, _SHOWN_TEXT)
        if is_array(value):
            return self._array(value, depth) if depth else "..."
        if is_mapping(value):
            return self._object(value, depth) if depth else "..."
        self._room -= 3
        return value if not isinstance(value, int) or value.bit_length() < 1024 else f"{value.bit_length()} bits"

    def _array(self, value: Any, depth: int) -> list[Any]:
        shown: list[Any] = []
        for one in value:
            if self._room <= 0 or len(shown) == self._members:
                shown.append(f"... {len(value) - len(shown):,} more")
                break
            shown.append(self.of(one, depth - 1))
        return shown

    def _object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, one in value.items():
            if self._room <= 0 or len(shown) == self._members:
                shown["..."] = f"{len(value) - len(shown):,} more"
                break
            self._room -= min(len(str(key)), _SHOWN_KEY)
            shown[clip_text(str(key), _SHOWN_KEY)] = self.of(one, depth - 1)
        return shown
