"""Lines and columns of byte offsets: both count from 1, columns in UTF-16 units.

Loaded by path in locked workers: imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

WIDE_BREAKS = (b"\xe2\x80\xa8", b"\xe2\x80\xa9")
WIDE_BLANKS = (b"\xc2\xa0", b"\xef\xbb\xbf")


def replace_offsets_with_locations(data: bytes, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the findings in order, with line and column in place of the byte offset ``"at"``."""
    ordered = sorted(items, key=lambda item: item["at"])
    return [
        {**item, "line": line, "column": column}
        for item, (line, column) in zip(
            ordered, iterate_locations(data, (item.pop("at") for item in ordered)), strict=True
        )
    ]


def iterate_locations(data: bytes, offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The line and column of each of these offsets, which rise."""
    position, line, column = 0, 1, 1
    for at in offsets:
        skipped = data[position:at]
        line += skipped.count(b"\n")
        last_line = skipped[skipped.rfind(b"\n") + 1 :]
        units = count_utf16_units(last_line)
        column = 1 + units if len(last_line) < len(skipped) else column + units
        position = at
        yield line, column


def count_utf16_units(data: bytes) -> int:
    """How many UTF-16 units a text has, given in UTF-8."""
    if data.isascii():
        return len(data)
    text = data.decode()
    # Encoding to UTF-16 would import a codec, which a locked worker cannot.
    return len(text) + sum(character > "\uffff" for character in text)


def normalize_line_breaks(data: bytes) -> bytes:
    """``data`` (UTF-8) of the same length in which every line break of the language ends with the same character."""
    if not data.isascii():
        for wide in WIDE_BREAKS:
            data = data.replace(wide, b"  \n")
    return data.replace(b"\r\n", b" \n").replace(b"\r", b"\n") if b"\r" in data else data


def normalize_whitespace(data: bytes) -> bytes:
    """As `normalize_line_breaks`, with the usual blanks beyond ASCII as spaces."""
    if not data.isascii():
        for wide in WIDE_BLANKS:
            data = data.replace(wide, b" " * len(wide))
    return normalize_line_breaks(data)
