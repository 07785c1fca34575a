r"""Texts of controls: what a browser sends back of a text is what it was, or its escapes. Pure.

A browser makes every end of a line CR LF, and drops what is none from a control of one line.
"""

from __future__ import annotations

import re
from typing import Literal

from codemode.plugins import decode_json

from ..visible import is_visible, visible_text

StringKind = Literal["text", "lines", "escaped", "date"]

_ONE_LINE_CHARACTERS = 120
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\\nrt]))")
_SAYS = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


class Unreadable(Exception):  # noqa: N818 - a person reads its words at the field
    """What was typed is no value of its kind."""


def string_kind(text: str, *, is_date: bool) -> StringKind:
    """Return the control that shows all of a text and sends it back as it is."""
    if is_date and text_is_date(text):
        return "date"
    if not is_visible(text, one_line=False):
        return "escaped"
    return "lines" if "\n" in text or "\t" in text or len(text) > _ONE_LINE_CHARACTERS else "text"


def typed_string(text: str, kind: str) -> str:
    """Return the text that was typed into such a control. Raises `Unreadable`."""
    lines = sent_lines(text)
    if kind == "escaped":
        return _without_escapes(lines)
    if kind == "date" and not text_is_date(lines):
        raise Unreadable("is no date: write it like 2026-01-31")
    return lines


def sent_lines(text: str) -> str:
    """Return a sent text with the ends of lines that it had in the page."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def with_escapes(text: str) -> str:
    """Return what such a control shows of a text; ends of lines stay."""
    return "\n".join(
        visible_text(line.replace("\\", "\\\\"), one_line=True) if line else "" for line in text.split("\n")
    )


def _without_escapes(text: str) -> str:
    parts: list[str] = []
    end = 0
    for found in _ESCAPE.finditer(text):
        parts += [text[end : found.start()], _character(found)]
        end = found.end()
    parts.append(text[end:])
    # What is left of a backslash is none of the escapes.
    if any("\\" in part for part in parts[::2]):
        raise Unreadable("holds an escape that is none: \\\\ is a backslash, \\u202e a character by its number")
    said = "".join(parts)
    # Two halves of a character, as JSON has them, are one.
    return said.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _character(found: re.Match[str]) -> str:
    code = int(found[1] or found[2] or "0", 16)
    if found[3]:
        return _SAYS[found[3]]
    if code > 0x10FFFF:
        raise Unreadable("holds the number of a character that there is not")
    return chr(code)


def typed_number(text: str) -> int | float:
    """Return the number that was typed: an integer exactly, else a float. Raises `Unreadable`."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        raise Unreadable("is no number: write it like 12, -3.5 or 1e6")
    try:
        return decode_json(text)
    except ValueError:
        raise Unreadable("is a number too large") from None


def text_is_date(text: str) -> bool:
    """Tell whether a text is a date as browsers have them, from the year 1 on."""
    from datetime import date

    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
