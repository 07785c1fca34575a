"""Hostile text made visible, and times as a page shows them."""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from markupsafe import Markup, escape

SHOWN_CHARACTERS = 2_000
"""So much of a value is on a page."""

ON_DEMAND_CHARACTERS = 64 * 1024
"""So much of it is shown when somebody asks; the rest is a download."""

# Printable for Unicode, and blank, a filler or a selector of shapes for everybody else.
_BLANK = frozenset({
    0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x1D159,
    *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0),
})  # fmt: skip
_MARKS = frozenset({"Mn", "Me", "Mc"})
# More of them on one character paint over the lines beside it.
_MOST_MARKS = 3
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True, slots=True)
class Cut:
    """The beginning of a value as it may stand in a page, and whether that is all."""

    text: Markup
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Folded:
    """A value of which a page shows the beginning, and the rest once somebody unfolds it.

    ``more`` is as much of it as is unfolded; None where the beginning is all, or the page has no room for more.
    """

    begun: Cut
    more: Cut | None

    @property
    def characters(self) -> int:
        """How many characters of the page it takes."""
        return len(self.begun.text) + (0 if self.more is None else len(self.more.text))


def visible(text: str, *, one_line: bool = False) -> Markup:
    """Return text for a page, HTML escaped, in which every character is seen. See `visible_text`."""
    return escape(visible_text(text, one_line=one_line))


def visible_text(text: str, *, one_line: bool = False) -> str:
    r"""Return text with escapes for what is not seen: ``\u202e`` for a character that turns the direction.

    Ends of lines and tabs stay unless it is to be ``one_line``. Not escaped for HTML.
    """
    if text.isprintable() and text.isascii():
        return text
    kept = "" if one_line else "\n\t"
    return "".join(_shown(text, kept))


def is_visible(text: str, *, one_line: bool = True) -> bool:
    """Tell whether all of a text is seen as it is."""
    return visible_text(text, one_line=one_line) == text


def visible_json(value: Any, *, indent: int | None = 2) -> str:
    """Return a value as JSON text that says the same when read, all of it to be seen. Not escaped for HTML.

    Raises `ValueError` for what is no JSON.
    """
    return "".join(visible_json_pieces(value, indent=indent))


def visible_json_pieces(value: Any, *, indent: int | None = 2) -> Iterator[str]:
    """Yield the pieces of `visible_json`, for those who need its beginning alone."""
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent, check_circular=False)
    for piece in encoder.iterencode(value):
        yield piece if piece.isascii() and piece.isprintable() else "".join(_shown(piece, "\n", for_json=True))


def cut(value: Any, most: int = SHOWN_CHARACTERS) -> Cut:
    """Return the first ``most`` characters of a text, or of the JSON of any other value, for a page."""
    if isinstance(value, str):
        return Cut(visible(value[:most]), len(value) <= most)
    text, is_whole = json_beginning(value, most)
    return Cut(escape(text), is_whole)


def fold(value: Any, *, has_room: bool = True) -> Folded:
    """Return a value for a page, as much of it folded as is shown on demand."""
    begun = cut(value)
    return Folded(begun, None if begun.is_whole or not has_room else cut(value, ON_DEMAND_CHARACTERS))


def json_beginning(value: Any, most: int, *, indent: int | None = 2) -> tuple[str, bool]:
    """Return the first ``most`` characters of `visible_json`, and whether that is all. Not escaped for HTML."""
    pieces: list[str] = []
    length = 0
    for piece in visible_json_pieces(_begun(value, [most]), indent=indent):
        pieces.append(piece)
        length += len(piece)
        if length > most:
            break
    return "".join(pieces)[:most], length <= most


def _begun(value: Any, left: list[int]) -> Any:
    """Return as much of a value as the first characters of its JSON tell of: a long text costs no more than that."""
    if isinstance(value, str):
        begun = value[: max(0, left[0]) + 1]
        left[0] -= len(begun)
        return begun
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, one in cast("dict[str, Any]", value).items():
            if left[0] < 0:
                break
            name: str = _begun(key, left)
            left[0] -= 2
            found[name] = _begun(one, left)
        return found
    if isinstance(value, list):
        items: list[Any] = []
        for one in cast("list[Any]", value):
            if left[0] < 0:
                break
            left[0] -= 1
            items.append(_begun(one, left))
        return items
    return value


def is_seen(character: str) -> bool:
    """Tell whether a character is seen as itself: no control, no direction, no filler, no unusual space."""
    return character.isprintable() and ord(character) not in _BLANK


def escaped(character: str, *, for_json: bool = False) -> str:
    r"""Return ``\n``, ``\u202e`` or ``\U000e0041``; for JSON the last as two surrogates."""
    if character in _NAMED:
        return _NAMED[character]
    code = ord(character)
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    if not for_json:
        return f"\\U{code:08x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _shown(text: str, kept: str, *, for_json: bool = False) -> Iterator[str]:
    # A mark at the beginning would stand on whatever the page has before it.
    marks = _MOST_MARKS
    for character in text:
        if character.isascii():
            marks = 0 if character.isprintable() and character != " " else _MOST_MARKS
            yield character if character in kept or character.isprintable() else escaped(character, for_json=for_json)
        elif not is_seen(character):
            marks = _MOST_MARKS
            yield escaped(character, for_json=for_json)
        elif unicodedata.category(character) in _MARKS:
            marks += 1
            yield character if marks <= _MOST_MARKS else escaped(character, for_json=for_json)
        else:
            marks = 0
            yield character


def moment_text(unix_ms: int) -> str:
    """Return a time for people, in UTC."""
    found = _moment(unix_ms)
    return f"{unix_ms} ms" if found is None else f"{found:%Y-%m-%d %H:%M:%S} UTC"


def moment(unix_ms: int) -> Markup:
    """Return a time for a page; the script of the console shows it in the zone of the viewer."""
    return _time(unix_ms, moment_text(unix_ms), "")


def ago(unix_ms: int) -> Markup:
    """Return how long ago a time was, or how far ahead it is, with the time itself on hover."""
    return _time(unix_ms, ago_text(unix_ms, time.time_ns() // 1_000_000), "ago")


def ago_text(unix_ms: int, now_ms: int) -> str:
    """Return such as ``3 min ago`` and ``in 23 h``: whole units, rounded down."""
    seconds = abs(now_ms - unix_ms) // 1000
    if seconds < _SECONDS["min"]:
        return "just now" if unix_ms <= now_ms else "in less than a minute"
    unit = next(name for name, size in reversed(_SECONDS.items()) if seconds >= size * (2 if name == "days" else 1))
    length = f"{seconds // _SECONDS[unit]} {unit}"
    return f"{length} ago" if unix_ms <= now_ms else f"in {length}"


_SECONDS = {"min": 60, "h": 3600, "days": 86_400}


def _time(unix_ms: int, text: str, style: str) -> Markup:
    found = _moment(unix_ms)
    if found is None:
        return Markup("{}").format(moment_text(unix_ms))
    stamp = found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    named = Markup(' class="{}"').format(style) if style else ""
    return Markup('<time{} datetime="{}" title="{}">{}</time>').format(named, stamp, moment_text(unix_ms), text)


def _moment(unix_ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a time of which no calendar knows
        return None
