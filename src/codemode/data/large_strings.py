"""Extract large strings from JSON text, leaving references, and put them back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

from ..records import record
from .json_values import decode_json_replacing_floats, replace_lone_surrogates
from .narrowing import is_array, is_object

_SLICE_CHARACTERS = 1 << 16
_REFERENCE_PREFIX = "0E"
_MAX_DIGITS = 9
_CHUNK_CHARACTERS = 1 << 17
_MAX_SEARCH_CHARACTERS = 1 << 20
_MAX_BACKSLASHES = 64  # before a quote, which may be escaped by the last of them
_ESCAPE_CHARACTERS = 6


def _return_no_size(_text: str) -> None:
    return None


@record
class LargeStrings:
    """The large strings of a JSON text: JSON of each, its UTF-8 bytes, and the text with references.

    References are numbered from 0 in order. ``strings`` has those that were decoded for their size. ``repeats`` has for
    each the number of an equal string that the program got before, if any.
    """

    texts: tuple[str, ...]
    sizes: tuple[int, ...]
    rest_json: str
    strings: tuple[str | None, ...] = ()
    repeats: tuple[int | None, ...] = ()


def extract_large_strings(
    text: str, min_bytes: int, size_of: Callable[[str], int | None] = _return_no_size
) -> LargeStrings | None:
    """Extract strings of at least ``min_bytes`` UTF-8 bytes from compact ASCII JSON, or return None.

    Keys stay. ``size_of`` returns the size of a known JSON text.
    """
    texts: list[str] = []
    sizes: list[int] = []
    strings: list[str | None] = []
    rest: list[str] = []
    position = 0
    for start, end in _find_long_strings(text, min_bytes):
        if text.startswith(":", end):
            continue
        string_json = text[start:end]
        known_size = size_of(string_json)  # hashing it may take long, and the hash is cached
        size, string = _measure_string(string_json) if known_size is None else (known_size, None)
        if size >= min_bytes:
            rest += (text[position:start], f"{_REFERENCE_PREFIX}{len(texts)}")
            texts.append(string_json)
            sizes.append(size)
            strings.append(string)
            position = end
    rest.append(text[position:])
    return LargeStrings(tuple(texts), tuple(sizes), "".join(rest), tuple(strings)) if texts else None


def may_have_references(text: str | None) -> bool:
    """Return whether a JSON text may contain references. Strings may look like it."""
    return text is not None and _REFERENCE_PREFIX in text


def decode_json_with_large_strings(text: str, string_at: Callable[[int], str]) -> Any:
    """Decode hostile JSON text with the large strings in their places."""

    def resolve_reference_number(number: str) -> str | None:
        digits = number[2:]
        is_reference = number.startswith(_REFERENCE_PREFIX) and digits.isdigit() and len(digits) <= _MAX_DIGITS
        return string_at(int(digits)) if is_reference else None

    value = decode_json_replacing_floats(resolve_reference_number, text)
    return _replace_nested_surrogates(value) if "\\ud" in text or "\\uD" in text else value


def expand_references(text: str, text_at: Callable[[int], str]) -> str:
    """Return a JSON text with the JSON texts of large strings in their places."""

    def expand_match(match: re.Match[str]) -> str:
        return match[0] if match[1] is None else text_at(int(match[1]))

    return _get_string_or_reference_pattern().sub(expand_match, text)


def iterate_reference_numbers(text: str) -> Iterator[int]:
    """Yield the numbers of the references in a JSON text, in order."""
    for match in _get_string_or_reference_pattern().finditer(text):
        if match[1] is not None:
            yield int(match[1])


def _replace_nested_surrogates(value: Any) -> Any:
    """Replace lone surrogates where they stand: the strings that were put in may be too long to be written again."""
    holder: list[Any] = [value]
    pending: list[Any] = [holder]
    while pending:
        item = pending.pop()
        if is_object(item) and not all(map(str.isascii, item)):
            renamed = {replace_lone_surrogates(key): child for key, child in item.items()}
            item.clear()
            item.update(renamed)
        members: list[tuple[Any, Any]] = [*(item.items() if is_object(item) else enumerate(cast("list[Any]", item)))]
        for key, child in members:
            if isinstance(child, str):
                item[key] = replace_lone_surrogates(child)
            elif is_object(child) or is_array(child):
                pending.append(child)
    return holder[0]


def decode_large_string(text: str) -> str:
    """Decode the JSON text of one large string; lone surrogates become U+FFFD."""
    return "".join(string for string, _ in _decode_in_chunks(text))


def _decode_in_chunks(text: str) -> Iterator[tuple[str, int]]:
    """Yield the pieces of a string, well formed, and the UTF-8 bytes of each."""
    # One call for all of it would keep the interpreter for as long as it is.
    start, end = 1, len(text) - 1
    while start < end:
        chunk = text[start : min(start + _CHUNK_CHARACTERS, end)]
        if start + len(chunk) < end:
            chunk = _trim_partial_escape(chunk)
        string = json.loads(f'"{chunk}"')
        try:
            size = len(string.encode())
        except UnicodeEncodeError:
            string = replace_lone_surrogates(string)
            size = len(string.encode())
        yield string, size
        start += len(chunk)


def _trim_partial_escape(chunk: str) -> str:
    """Return a piece without what is begun at its end: an escape, or a pair of them that is one character."""
    last_backslash = chunk.rfind("\\", len(chunk) - _ESCAPE_CHARACTERS)
    if last_backslash < 0:
        return chunk
    if (last_backslash + 1 - len(chunk[: last_backslash + 1].rstrip("\\"))) % 2 == 0:
        return chunk  # the backslash that an escape says
    is_whole = len(chunk) - last_backslash >= (
        _ESCAPE_CHARACTERS if chunk[last_backslash + 1 : last_backslash + 2] == "u" else 2
    )
    if not is_whole:
        return _trim_partial_escape(chunk[:last_backslash])
    is_half = chunk[last_backslash + 1 : last_backslash + 3].lower() == "ud" and chunk[last_backslash + 3] in "89abAB"
    return chunk[:last_backslash] if is_half else chunk


@cache
def _get_string_or_reference_pattern() -> re.Pattern[str]:
    # A string is gone over as a whole, so that what stands in one is no number.
    return re.compile(r'"(?:[^"\\]++|\\.)*+"|(?<![0-9.+-])0E([0-9]{1,9})(?![0-9.eE+-])')


def _measure_string(text: str) -> tuple[int, str | None]:
    """Return the UTF-8 bytes of a string, and the string where it had to be read for that."""
    if "\\u" not in text:
        # An escape begins with one backslash, and the one of a backslash has two.
        return len(text) - 2 - text.count("\\") + text.count("\\\\"), None
    pieces = [*_decode_in_chunks(text)]
    return sum(size for _, size in pieces), "".join(piece for piece, _ in pieces)


def _find_long_strings(text: str, min_characters: int) -> Iterator[tuple[int, int]]:
    """Yield where strings begin and end, with their quotes, that are of at least so many characters."""
    if text.startswith('"'):  # nothing can follow it
        yield 0, len(text)
        return
    start, opening_quote = 0, -1
    while start < len(text):
        if opening_quote >= 0:
            start = _find_quote_search_start(text, start)
        piece = _read_masked_slice(text, start)
        parts = piece.split('"')
        lengths = [*map(len, parts)]
        if opening_quote >= 0 or max(lengths) >= min_characters:
            last_quote = start - 1
            for index, length in enumerate(lengths):
                quote = last_quote + 1 + length
                is_last = index == len(parts) - 1
                if opening_quote >= 0 and not is_last:
                    if quote - opening_quote > min_characters:
                        yield opening_quote, quote + 1
                    opening_quote = -1
                elif opening_quote < 0 and not is_last:
                    opening_quote = quote
                last_quote = quote
        elif len(parts) % 2 == 0:
            opening_quote = start + len(piece) - lengths[-1] - 1
        start += len(piece)


def _find_quote_search_start(text: str, start: int) -> int:
    """Return the offset from which to search for the end of the string that contains ``start``."""
    quote = text.find('"', start, start + _MAX_SEARCH_CHARACTERS)
    end = min(start + _MAX_SEARCH_CHARACTERS, len(text)) if quote < 0 else quote
    last = text[max(start, end - _MAX_BACKSLASHES) : end]
    backslashes = len(last) - len(last.rstrip("\\"))
    return start if backslashes == len(last) else end - backslashes


def _read_masked_slice(text: str, start: int) -> str:
    """Return a slice as long as it is in the text, with no escape cut in two and no quote that ends no string."""
    end = start + _SLICE_CHARACTERS
    chunk = text[start:end]
    if "\\" not in chunk:
        return chunk
    if (len(chunk) - len(chunk.rstrip("\\"))) % 2:
        chunk = text[start : end + 1]
    return chunk.replace("\\\\", "..").replace('\\"', "..")
