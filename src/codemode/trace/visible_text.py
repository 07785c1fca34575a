"""Makes text of guests and tools safe to display on a terminal or a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .unseen import has_only_visible_characters

_UNUSUAL_LINE_ENDS = re.compile("\r(?!\n)|[\u2028\u2029]")


def escape_invisible(text: str, *, keep: str = "") -> str:
    r"""Return the text with ``\u`` escapes for invisible characters and those that move the cursor or change direction.

    ``keep`` lists characters to leave as they are, such as a newline.
    """
    if has_only_visible_characters(text):
        return text
    return "".join(
        char if has_only_visible_characters(char) or char in keep else _escape_character(char) for char in text
    )


def split_program_lines_if_unambiguous(source: str) -> list[str]:
    """Return a program's lines as its engine counts them; no lines if its line ends are ambiguous."""
    if _UNUSUAL_LINE_ENDS.search(source):
        return []
    return [line.removesuffix("\r") for line in source.removesuffix("\n").split("\n")]


def clip_to_visible_line(text: str, max_characters: int) -> str:
    """Return visible text on one line, clipped to so many characters."""
    return clip_text(escape_invisible(text[: max_characters + 1]), max_characters)


def clip_text(text: str, max_characters: int) -> str:
    """Return at most so many characters of a text, the last of them an ellipsis where there are more."""
    return text if len(text) <= max_characters else text[: max_characters - 1] + "…"


def format_count(count: int, noun: str) -> str:
    """Return "1 call" or "1,200 calls"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def align_columns(rows: Iterable[Sequence[str]], *, gap: str = "  ") -> list[str]:
    """Return rows of equally many cells as lines in which the cells of a column begin at the same place."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def _escape_character(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\u{{{code:x}}}"
