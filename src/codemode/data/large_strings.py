"""Large strings cut out of JSON text, and put in again. Pure: knows no tool and no program.

What stands for one is a number as nothing else that is written here, or in a program, writes numbers: ``0E`` and
digits. A string can hold that spelling without being taken for one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

from ..records import record
from .json_values import decode_json_with, well_formed
from .narrowing import is_array, is_object

_SLICE_CHARACTERS = 1 << 16
_MARK = "0E"
_MAX_DIGITS = 9
_PIECE_CHARACTERS = 1 << 17
_LOOKED_THROUGH_CHARACTERS = 1 << 20
_MOST_BACKSLASHES = 64  # before a quote, which may be escaped by the last of them
_ESCAPE_CHARACTERS = 6


def _unknown(_text: str) -> None:
    return None


@record
class LargeStrings:
    """The large strings of one JSON text: JSON text of each, its UTF-8 bytes, and the text with places for them.

    The places are numbered from 0, as the strings stand in the text. ``strings`` are those that had to be read for
    their size. ``repeats`` has for each the number of an equal one that the program was handed before, if there is one.
    """

    texts: tuple[str, ...]
    sizes: tuple[int, ...]
    rest_json: str
    strings: tuple[str | None, ...] = ()
    repeats: tuple[int | None, ...] = ()


def cut_large_strings(text: str, shortest: int, size_of: Callable[[str], int | None] = _unknown) -> LargeStrings | None:
    """Cut strings of at least so many UTF-8 bytes out of compact ASCII JSON text; None when there are none.

    Keys stay where they are. ``size_of`` gives the bytes of a JSON text that is known.
    """
    texts: list[str] = []
    sizes: list[int] = []
    strings: list[str | None] = []
    rest: list[str] = []
    at = 0
    for start, end in _long_strings(text, shortest):
        if text.startswith(":", end):
            continue
        one = text[start:end]
        known = size_of(one)  # its hash is kept, and may take long to make
        size, string = _measured(one) if known is None else (known, None)
        if size >= shortest:
            rest += (text[at:start], f"{_MARK}{len(texts)}")
            texts.append(one)
            sizes.append(size)
            strings.append(string)
            at = end
    rest.append(text[at:])
    return LargeStrings(tuple(texts), tuple(sizes), "".join(rest), tuple(strings)) if texts else None


def may_have_places(text: str | None) -> bool:
    """Tell whether there may be places for large strings in a JSON text. Strings may look like it."""
    return text is not None and _MARK in text


def read_with_strings(text: str, string_at: Callable[[int], str]) -> Any:
    """Decode hostile JSON text with the large strings in their places."""

    def read_number(number: str) -> str | None:
        digits = number[2:]
        is_place = number.startswith(_MARK) and digits.isdigit() and len(digits) <= _MAX_DIGITS
        return string_at(int(digits)) if is_place else None

    value = decode_json_with(read_number, text)
    return _well_formed(value) if "\\ud" in text or "\\uD" in text else value


def text_with_strings(text: str, text_at: Callable[[int], str]) -> str:
    """Return a JSON text with the JSON texts of large strings in their places."""

    def piece(found: re.Match[str]) -> str:
        return found[0] if found[1] is None else text_at(int(found[1]))

    return _string_or_place().sub(piece, text)


def places_in(text: str) -> Iterator[int]:
    """Yield the numbers of the places in a JSON text, in their order."""
    for found in _string_or_place().finditer(text):
        if found[1] is not None:
            yield int(found[1])


def _well_formed(value: Any) -> Any:
    """Replace lone surrogates where they stand: the strings that were put in may be too long to be written again."""
    whole: list[Any] = [value]
    pending: list[Any] = [whole]
    while pending:
        item = pending.pop()
        if is_object(item) and not all(map(str.isascii, item)):
            named = {well_formed(key): one for key, one in item.items()}
            item.clear()
            item.update(named)
        places: list[tuple[Any, Any]] = [*(item.items() if is_object(item) else enumerate(cast("list[Any]", item)))]
        for key, one in places:
            if isinstance(one, str):
                item[key] = well_formed(one)
            elif is_object(one) or is_array(one):
                pending.append(one)
    return whole[0]


def large_string(text: str) -> str:
    """Return the string that such a text says, well formed."""
    return "".join(string for string, _ in _read_in_pieces(text))


def _read_in_pieces(text: str) -> Iterator[tuple[str, int]]:
    """Yield the pieces of a string, well formed, and the UTF-8 bytes of each."""
    # One call for all of it would keep the interpreter for as long as it is.
    start, end = 1, len(text) - 1
    while start < end:
        piece = text[start : min(start + _PIECE_CHARACTERS, end)]
        if start + len(piece) < end:
            piece = _to_whole_characters(piece)
        string = json.loads(f'"{piece}"')
        try:
            size = len(string.encode())
        except UnicodeEncodeError:
            string = well_formed(string)
            size = len(string.encode())
        yield string, size
        start += len(piece)


def _to_whole_characters(piece: str) -> str:
    """Return a piece without what is begun at its end: an escape, or a pair of them that is one character."""
    last = piece.rfind("\\", len(piece) - _ESCAPE_CHARACTERS)
    if last < 0:
        return piece
    if (last + 1 - len(piece[: last + 1].rstrip("\\"))) % 2 == 0:
        return piece  # the backslash that an escape says
    is_whole = len(piece) - last >= (_ESCAPE_CHARACTERS if piece[last + 1 : last + 2] == "u" else 2)
    if not is_whole:
        return _to_whole_characters(piece[:last])
    is_half = piece[last + 1 : last + 3].lower() == "ud" and piece[last + 3] in "89abAB"
    return piece[:last] if is_half else piece


@cache
def _string_or_place() -> re.Pattern[str]:
    # A string is gone over as a whole, so that what stands in one is no number.
    return re.compile(r'"(?:[^"\\]++|\\.)*+"|(?<![0-9.+-])0E([0-9]{1,9})(?![0-9.eE+-])')


def _measured(text: str) -> tuple[int, str | None]:
    """Return the UTF-8 bytes of a string, and the string where it had to be read for that."""
    if "\\u" not in text:
        # An escape begins with one backslash, and the one of a backslash has two.
        return len(text) - 2 - text.count("\\") + text.count("\\\\"), None
    pieces = [*_read_in_pieces(text)]
    return sum(size for _, size in pieces), "".join(piece for piece, _ in pieces)


def _long_strings(text: str, shortest: int) -> Iterator[tuple[int, int]]:
    """Yield where strings begin and end, with their quotes, that are of at least so many characters."""
    if text.startswith('"'):  # nothing can follow it
        yield 0, len(text)
        return
    start, opened = 0, -1
    while start < len(text):
        if opened >= 0:
            start = _before_quote(text, start)
        piece = _without_escapes(text, start)
        parts = piece.split('"')
        lengths = [*map(len, parts)]
        if opened >= 0 or max(lengths) >= shortest:
            at = start - 1
            for index, length in enumerate(lengths):
                quote = at + 1 + length
                is_last = index == len(parts) - 1
                if opened >= 0 and not is_last:
                    if quote - opened > shortest:
                        yield opened, quote + 1
                    opened = -1
                elif opened < 0 and not is_last:
                    opened = quote
                at = quote
        elif len(parts) % 2 == 0:
            opened = start + len(piece) - lengths[-1] - 1
        start += len(piece)


def _before_quote(text: str, start: int) -> int:
    """Return from where on there is to be looked for the end of the string in which ``start`` is."""
    quote = text.find('"', start, start + _LOOKED_THROUGH_CHARACTERS)
    end = min(start + _LOOKED_THROUGH_CHARACTERS, len(text)) if quote < 0 else quote
    last = text[max(start, end - _MOST_BACKSLASHES) : end]
    backslashes = len(last) - len(last.rstrip("\\"))
    return start if backslashes == len(last) else end - backslashes


def _without_escapes(text: str, start: int) -> str:
    """Return a slice as long as it is in the text, with no escape cut in two and no quote that ends no string."""
    end = start + _SLICE_CHARACTERS
    piece = text[start:end]
    if "\\" not in piece:
        return piece
    if (len(piece) - len(piece.rstrip("\\"))) % 2:
        piece = text[start : end + 1]
    return piece.replace("\\\\", "..").replace('\\"', "..")
