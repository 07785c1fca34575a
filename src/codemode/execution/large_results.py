"""Describe printed lines and large results for models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..data.narrowing import is_array, is_mapping
from ..trace.visible_text import clip_text, escape_invisible, format_count

if TYPE_CHECKING:
    from ..trace.events import ConsoleEvent


MAX_CONSOLE_CHARACTERS = 4000
_BEGINNING_CHARACTERS = 1000  # of a text that is too long; its end is more useful for a failure
_MARK_CHARACTERS = 60
_KEPT_CONTROLS = "\n\t"
_LAST_CHARACTERS = 300
_LAST_CALL = re.compile(r"(?:^|[\n;}])[ \t]*(?:void )?([A-Za-z_$][\w$]{0,80})\(\)(?:\.catch\([\w$.]{0,80}\))?$")


def escape_and_shorten_console(console: Sequence[ConsoleEvent]) -> str:
    """Return printed lines as plain text of at most 4,000 characters, with the middle cut."""
    text = "\n".join(line.text if line.level == "log" else f"[{line.level}] {line.text}" for line in console)
    max_characters = MAX_CONSOLE_CHARACTERS
    if len(text) > 2 * max_characters:  # so that only short texts are escaped
        text = _cut_text_middle(text, max_characters)
    visible_text = escape_invisible(text, keep=_KEPT_CONTROLS)
    return visible_text if len(visible_text) <= max_characters else _cut_text_middle(visible_text, max_characters)


def _cut_text_middle(text: str, max_characters: int) -> str:
    end = max_characters - _BEGINNING_CHARACTERS - _MARK_CHARACTERS
    left_out = format_count(len(text) - _BEGINNING_CHARACTERS - end, "character")
    return f"{text[:_BEGINNING_CHARACTERS]}\n... ({left_out} left out) ...\n{text[-end:]}"


def suggest_awaiting_last_call(js: str) -> str | None:
    """Return a replacement for the last statement of a program that calls its own async function without awaiting it.

    ``async function main() {...} main();`` ends before ``main`` does, and returns nothing.
    """
    end = js.rstrip()[-_LAST_CHARACTERS:].rstrip("; \t\r\n")
    if end.endswith("})()"):
        return "`return await (async () => {...})();`" if "(async" in js else None
    match = _LAST_CALL.search(end)
    if match is None:
        return None
    name = match[1]
    is_own = f"function {name}" in js or f"{name} = async" in js
    return f"`return await {name}();`" if is_own else None


_MAX_BEGINNING_CHARACTERS = 2000
_MAX_SHAPE_CHARACTERS = 400
_MAX_SHAPE_DEPTH = 4
_MAX_DISPLAYED_DEPTH = 8
_MAX_DISPLAYED_MEMBERS = 20
_MAX_DISPLAYED_TEXT_CHARACTERS = 200
_MAX_DISPLAYED_KEY_CHARACTERS = 80
_RETURN_LESS = "Return less: filter, slice, count or aggregate in the program."
_REST_DROPPED = f"The rest was dropped. {_RETURN_LESS}"


def is_longer_than(value: Any, max_characters: int, json_bytes: int | None = None) -> bool:
    """Return True if a result has more than ``max_characters`` characters as text or compact JSON.

    ``json_bytes`` is the size of its JSON, if known. The work is bounded by ``max_characters``.
    """
    if isinstance(value, str):
        return len(value) > max_characters
    if json_bytes is not None and json_bytes <= max_characters:
        return False
    if json_bytes is not None and json_bytes > 4 * max_characters:
        return True  # no character takes more bytes
    return estimate_result_characters(value, max_characters) > max_characters


def estimate_result_characters(value: Any, max_characters: int) -> int:
    """Count the characters of a value for a model, approximately, up to ``max_characters``."""
    if isinstance(value, str):
        return len(value)
    count = 0
    for characters in _iter_character_counts(value, max_characters):
        count += characters
        if count > max_characters:
            break
    return count


def _iter_character_counts(value: Any, max_characters: int) -> Iterator[int]:
    """Yield the characters of a value's JSON, piece by piece."""
    pending: list[Iterator[Any]] = [iter((value,))]
    while pending:
        for item in pending[-1]:
            if isinstance(item, str):
                yield len(item) + 3 if len(item) > max_characters else len(json.dumps(item, ensure_ascii=False)) + 1
            elif is_mapping(item):
                yield 3
                pending.append(_iter_keys_and_values(item))
                break
            elif is_array(item):
                yield 3
                pending.append(iter(item))
                break
            else:
                yield _count_scalar_characters(item) + 1
        else:
            pending.pop()


def _iter_keys_and_values(value: Mapping[Any, Any]) -> Iterator[Any]:
    for key, member in value.items():
        yield str(key)
        yield member


def _count_scalar_characters(value: Any) -> int:
    return value.bit_length() // 3 + 2 if type(value) is int else len(repr(value))


def describe_too_large_result(
    value: Any, max_characters: int, json_bytes: int | None = None, key: str | None = None
) -> str:
    """Return the model's text about a result that is too large, of at most ``max_characters`` characters.

    It has the size, the shape and a beginning that is valid JSON, with whole members omitted and long texts cut.
    ``key`` is where programs find the result in ``state``; without it the rest is lost.
    """
    if key is None:
        end = _REST_DROPPED
    else:
        end = f"The whole is saved: the next program reads it with `await state.get({json.dumps(key)})`. {_RETURN_LESS}"
    size = _describe_size(value, json_bytes)
    notice = f"The result is too large: {size}. At most {max_characters:,} characters are allowed."
    room = max(min(max_characters - len(notice) - len(end) - _MAX_SHAPE_CHARACTERS - 100, _MAX_BEGINNING_CHARACTERS), 0)
    if isinstance(value, str):
        return f"{notice}\nIts beginning:\n{value[:room]}\n{end}"
    shape = clip_text(_describe_shape(value, _MAX_SHAPE_DEPTH, _MAX_SHAPE_CHARACTERS), _MAX_SHAPE_CHARACTERS)
    return f"{notice}\nIts shape: {shape}\nIts beginning, shortened:\n{_encode_beginning(value, room)}\n{end}"


def replace_if_too_large(value: Any, max_characters: int | None, json_bytes: int | None = None) -> Any:
    """Return a value, or the text that replaces it if it is too large."""
    if max_characters is None or not is_longer_than(value, max_characters, json_bytes):
        return value
    return describe_too_large_result(value, max_characters, json_bytes)


def _describe_size(value: Any, json_bytes: int | None) -> str:
    if isinstance(value, str):
        return format_count(len(value), "character") + " of text"
    what = "a value"
    if is_array(value):
        what = f"an array of {format_count(len(value), 'item')}"
    elif is_mapping(value):
        what = f"an object with {format_count(len(value), 'key')}"
    return what if json_bytes is None else f"{what}, {format_count(json_bytes, 'byte')} of JSON"


def _describe_shape(value: Any, depth: int, max_characters: int) -> str:
    """Return the shape of a value, of at most about ``max_characters`` characters."""
    if is_array(value):
        return f"{_describe_shape(value[0], depth - 1, max_characters)}[]" if value and depth else "unknown[]"
    if is_mapping(value):
        if not depth:
            return "object"
        members: list[str] = []
        for key, member_value in cast("Mapping[Any, Any]", value).items():
            if len(members) == _MAX_DISPLAYED_MEMBERS or max_characters < 0:
                members.append("...")
                break
            name = str(key)[:_MAX_DISPLAYED_KEY_CHARACTERS]
            shape = _describe_shape(member_value, depth - 1, max_characters)
            member = f"{name if name.isidentifier() else json.dumps(name)}: {shape}"
            members.append(member)
            max_characters -= len(member)
        return "{ " + ", ".join(members) + " }" if members else "{}"
    if value is None:
        return "null"
    return "boolean" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"


def _encode_beginning(value: Any, max_characters: int) -> str:
    """Return JSON of at most ``max_characters`` characters with the first members of a value; "" if none fits."""
    members = _MAX_DISPLAYED_MEMBERS
    while members:
        text = json.dumps(
            _ValueShortener(max_characters, members).shorten_value(value, _MAX_DISPLAYED_DEPTH), ensure_ascii=False
        )
        if len(text) <= max_characters:
            return text
        members //= 2
    return "" if max_characters < len("[...]") else "[...]" if is_array(value) else "{...}"


class _ValueShortener:
    """Takes the first members of a value, recursively, until the space is used."""

    def __init__(self, max_characters: int, members: int) -> None:
        self._remaining_characters = max_characters
        self._members = members

    def shorten_value(self, value: Any, depth: int) -> Any:
        self._remaining_characters -= 2  # also for empty containers, which may be many
        if isinstance(value, str):
            self._remaining_characters -= min(len(value), _MAX_DISPLAYED_TEXT_CHARACTERS)
            return clip_text(value, _MAX_DISPLAYED_TEXT_CHARACTERS)
        if is_array(value):
            return self._shorten_array(value, depth) if depth else "..."
        if is_mapping(value):
            return self._shorten_object(value, depth) if depth else "..."
        self._remaining_characters -= 3
        return value if not isinstance(value, int) or value.bit_length() < 1024 else f"{value.bit_length()} bits"

    def _shorten_array(self, value: Any, depth: int) -> list[Any]:
        items: list[Any] = []
        for item in value:
            if self._remaining_characters <= 0 or len(items) == self._members:
                items.append(f"... {len(value) - len(items):,} more")
                break
            items.append(self.shorten_value(item, depth - 1))
        return items

    def _shorten_object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, member in value.items():
            if self._remaining_characters <= 0 or len(members) == self._members:
                members["..."] = f"{len(value) - len(members):,} more"
                break
            self._remaining_characters -= min(len(str(key)), _MAX_DISPLAYED_KEY_CHARACTERS)
            members[clip_text(str(key), _MAX_DISPLAYED_KEY_CHARACTERS)] = self.shorten_value(member, depth - 1)
        return members
