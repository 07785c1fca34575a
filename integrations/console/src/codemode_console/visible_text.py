"""Escape invisible characters, shorten values and format times."""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from markupsafe import Markup, escape

MAX_EXCERPT_CHARACTERS = 2_000
"""The limit of a value on a page."""

MAX_EXPANDED_CHARACTERS = 64 * 1024
"""The limit of an expanded value; the rest is a download."""

# Printable for Unicode, but displayed as blank: fillers and variation selectors.
_BLANK_CODE_POINTS = frozenset({
    0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x1D159,
    *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0),
})  # fmt: skip
_MARK_CATEGORIES = frozenset({"Mn", "Me", "Mc"})
# More combining marks on one character cover adjacent lines.
_MAX_MARKS_PER_CHARACTER = 3
_NAMED_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a value as HTML, and whether that is all of it."""

    text: Markup
    is_whole: bool


@dataclass(frozen=True, slots=True)
class ExpandableExcerpt:
    """An excerpt and, where there is more, the longer excerpt ``rest`` that expands it."""

    beginning: Excerpt
    rest: Excerpt | None

    @property
    def character_count(self) -> int:
        """The size on a page."""
        return len(self.beginning.text) + (0 if self.rest is None else len(self.rest.text))


def to_visible_html(text: str, *, one_line: bool = False) -> Markup:
    """Return text as HTML in which every character is visible. See `to_visible_text`."""
    return escape(to_visible_text(text, one_line=one_line))


def to_visible_text(text: str, *, one_line: bool = False) -> str:
    r"""Return text with invisible characters as escapes such as ``\u202e``. Not escaped for HTML.

    Newlines and tabs stay unless ``one_line``.
    """
    if text.isprintable() and text.isascii():
        return text
    allowed = "" if one_line else "\n\t"
    return "".join(_iterate_escaped(text, allowed))


def is_all_visible(text: str, *, one_line: bool = True) -> bool:
    """Return whether a text has no invisible characters."""
    return to_visible_text(text, one_line=one_line) == text


def to_visible_json(value: Any, *, indent: int | None = 2) -> str:
    """Return equivalent JSON in which every character is visible. Not escaped for HTML.

    Raises `ValueError` for values that are not JSON.
    """
    return "".join(iterate_visible_json(value, indent=indent))


def iterate_visible_json(value: Any, *, indent: int | None = 2) -> Iterator[str]:
    """Yield the pieces of `to_visible_json`."""
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent, check_circular=False)
    for piece in encoder.iterencode(value):
        yield (
            piece if piece.isascii() and piece.isprintable() else "".join(_iterate_escaped(piece, "\n", for_json=True))
        )


def create_excerpt(value: Any, max_characters: int = MAX_EXCERPT_CHARACTERS) -> Excerpt:
    """Return the first characters of a text, or of another value's JSON."""
    if isinstance(value, str):
        return Excerpt(to_visible_html(value[:max_characters]), len(value) <= max_characters)
    text, is_whole = to_truncated_visible_json(value, max_characters)
    return Excerpt(escape(text), is_whole)


def create_expandable_excerpt(value: Any, *, has_room: bool = True) -> ExpandableExcerpt:
    """Return an excerpt of a value with its expansion, if the page has room."""
    beginning = create_excerpt(value)
    return ExpandableExcerpt(
        beginning, None if beginning.is_whole or not has_room else create_excerpt(value, MAX_EXPANDED_CHARACTERS)
    )


def to_truncated_visible_json(value: Any, max_characters: int, *, indent: int | None = 2) -> tuple[str, bool]:
    """Return the first characters of `to_visible_json`, and whether that is all. Not escaped for HTML."""
    pieces: list[str] = []
    length = 0
    for piece in iterate_visible_json(_truncate_value(value, [max_characters]), indent=indent):
        pieces.append(piece)
        length += len(piece)
        if length > max_characters:
            break
    return "".join(pieces)[:max_characters], length <= max_characters


def _truncate_value(value: Any, left: list[int]) -> Any:
    """Return enough of a value for the first characters of its JSON, so that long texts cost little."""
    if isinstance(value, str):
        beginning = value[: max(0, left[0]) + 1]
        left[0] -= len(beginning)
        return beginning
    if isinstance(value, dict):
        members: dict[str, Any] = {}
        for key, item in cast("dict[str, Any]", value).items():
            if left[0] < 0:
                break
            name: str = _truncate_value(key, left)
            left[0] -= 2
            members[name] = _truncate_value(item, left)
        return members
    if isinstance(value, list):
        items: list[Any] = []
        for item in cast("list[Any]", value):
            if left[0] < 0:
                break
            left[0] -= 1
            items.append(_truncate_value(item, left))
        return items
    return value


def is_visible_character(character: str) -> bool:
    """Return whether a character is visible: no control, direction, filler or unusual space."""
    return character.isprintable() and ord(character) not in _BLANK_CODE_POINTS


def escape_character(character: str, *, for_json: bool = False) -> str:
    r"""Return ``\n``, ``\u202e`` or ``\U000e0041``; for JSON the last as two surrogates."""
    if character in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[character]
    code = ord(character)
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    if not for_json:
        return f"\\U{code:08x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _iterate_escaped(text: str, allowed: str, *, for_json: bool = False) -> Iterator[str]:
    # A mark at the beginning would combine with the page's text before it.
    mark_count = _MAX_MARKS_PER_CHARACTER
    for character in text:
        if character.isascii():
            mark_count = 0 if character.isprintable() and character != " " else _MAX_MARKS_PER_CHARACTER
            yield (
                character
                if character in allowed or character.isprintable()
                else escape_character(character, for_json=for_json)
            )
        elif not is_visible_character(character):
            mark_count = _MAX_MARKS_PER_CHARACTER
            yield escape_character(character, for_json=for_json)
        elif unicodedata.category(character) in _MARK_CATEGORIES:
            mark_count += 1
            yield (
                character if mark_count <= _MAX_MARKS_PER_CHARACTER else escape_character(character, for_json=for_json)
            )
        else:
            mark_count = 0
            yield character


def format_time(unix_ms: int) -> str:
    """Return a time in UTC."""
    found = _to_datetime(unix_ms)
    return f"{unix_ms} ms" if found is None else f"{found:%Y-%m-%d %H:%M:%S} UTC"


def create_time_element(unix_ms: int) -> Markup:
    """Return a time as HTML; the script shows it in the viewer's time zone."""
    return _format_time_element(unix_ms, format_time(unix_ms), "")


def create_relative_time_element(unix_ms: int) -> Markup:
    """Return a relative time as HTML, with the exact time on hover."""
    return _format_time_element(unix_ms, format_relative_time(unix_ms, time.time_ns() // 1_000_000), "ago")


def format_relative_time(unix_ms: int, now_ms: int) -> str:
    """Return a relative time such as ``3 min ago`` or ``in 23 h``, rounded down."""
    seconds = abs(now_ms - unix_ms) // 1000
    if seconds < _UNIT_SECONDS["min"]:
        return "just now" if unix_ms <= now_ms else "in less than a minute"
    unit = next(
        name for name, size in reversed(_UNIT_SECONDS.items()) if seconds >= size * (2 if name == "days" else 1)
    )
    duration = f"{seconds // _UNIT_SECONDS[unit]} {unit}"
    return f"{duration} ago" if unix_ms <= now_ms else f"in {duration}"


_UNIT_SECONDS = {"min": 60, "h": 3600, "days": 86_400}


def _format_time_element(unix_ms: int, text: str, style: str) -> Markup:
    moment = _to_datetime(unix_ms)
    if moment is None:
        return Markup("{}").format(format_time(unix_ms))
    stamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    class_attribute = Markup(' class="{}"').format(style) if style else ""
    return Markup('<time{} datetime="{}" title="{}">{}</time>').format(
        class_attribute, stamp, format_time(unix_ms), text
    )


def _to_datetime(unix_ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # out of the calendar's range
        return None
