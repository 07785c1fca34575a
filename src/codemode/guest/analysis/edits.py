"""Edits that blank parts of a program's text in place, by byte offset.

Loaded by path in locked workers: imports nothing.
"""

from __future__ import annotations

NEWLINES = "\n\r\u2028\u2029"
WIDE_BREAKS = (b"\xe2\x80\xa8", b"\xe2\x80\xa9")
ALL_BREAKS = b"\n" * 256
ASCII_BLANKS = bytes(byte if byte in b"\n\r" else 0x20 for byte in range(256))
WHITE_SPACE = b" \t\n\r\v\f"
NO_HAZARD_BYTES: frozenset[int] = frozenset()
NO_TOKEN = -1  # no token before or behind


class BlankedGap:
    """A part of the text between two tokens: ``start`` to ``end`` in bytes, blanked unless it is a comment.

    ``first`` and ``last`` are the characters that stand in place of the blank's own first and last. ``hazards`` are the
    characters that must not follow without a `;` in between.
    """

    __slots__ = ("end", "first", "hazards", "is_comment", "last", "start")

    def __init__(
        self,
        start: int,
        end: int,
        *,
        first: str = "",
        last: str = "",
        hazards: frozenset[int] = NO_HAZARD_BYTES,
        is_comment: bool = False,
    ) -> None:
        self.start, self.end, self.first, self.last = start, end, first, last
        self.hazards, self.is_comment = hazards, is_comment

    def sort_key(self) -> tuple[int, int, bool]:
        return self.start, -self.end, not (self.first or self.last or self.hazards)


def blank_gaps_and_separate_statements(data: bytes, gaps: list[BlankedGap]) -> str:
    """``data`` (UTF-8) with every gap blanked; the rest keeps its lines, and columns in UTF-16 units."""
    if all(gap.is_comment for gap in gaps):
        return data.decode()
    ordered_gaps = select_outermost_gaps(gaps)
    _add_missing_semicolons_to_gaps(data, ordered_gaps)
    pieces: list[str] = []
    position = 0
    for gap in ordered_gaps:
        if not gap.is_comment:
            pieces += (data[position : gap.start].decode(), _blank_gap(data[gap.start : gap.end], gap))
            position = gap.end
    return "".join([*pieces, data[position:].decode()])


def blank_gaps_and_comments_bytewise(data: bytes, gaps: list[BlankedGap]) -> bytes:
    """``data`` (UTF-8) with every gap blank, byte for byte, but for the characters that stand in place of a blank's."""
    code = blank_spans(data, [(gap.start, gap.end) for gap in gaps])
    marked = [gap for gap in gaps if gap.first or gap.last]
    if not marked:
        return code
    code_bytes = bytearray(code)
    for gap in marked:
        code_bytes[gap.start : gap.start + len(gap.first)] = gap.first.encode()
        code_bytes[gap.end - len(gap.last) : gap.end] = gap.last.encode()
    return bytes(code_bytes)


def blank_spans(code: bytes, spans: list[tuple[int, int]]) -> bytes:
    """``code`` (UTF-8) with the spans blank, byte for byte; where one has a line break there is still one."""
    if not spans:
        return code
    blanked = bytearray(code)
    for start, end in spans:
        piece = code[start:end]
        is_plain = piece.isascii() or not any(wide in piece for wide in WIDE_BREAKS)
        blanked[start:end] = piece.translate(ASCII_BLANKS if is_plain else ALL_BREAKS)
    return bytes(blanked)


def select_outermost_gaps(gaps: list[BlankedGap]) -> list[BlankedGap]:
    """The gaps in order, without those that lie inside another."""
    outermost_gaps: list[BlankedGap] = []
    for gap in sorted(gaps, key=BlankedGap.sort_key):
        if not outermost_gaps or gap.start >= outermost_gaps[-1].end:
            outermost_gaps.append(gap)
    return outermost_gaps


def _blank_gap(piece: bytes, gap: BlankedGap) -> str:
    if piece.isascii():
        blank = piece.translate(ASCII_BLANKS).decode()
    else:
        # A character beyond the basic plane is two UTF-16 units wide.
        blank = "".join(c if c in NEWLINES else " " if c < "\U00010000" else "  " for c in piece.decode())
    return gap.first + blank[len(gap.first) : len(blank) - len(gap.last)] + gap.last


def _add_missing_semicolons_to_gaps(data: bytes, gaps: list[BlankedGap]) -> None:
    """Puts a `;` first in each gap around which two statements would otherwise become one."""
    before, position = NO_TOKEN, 0
    for gap, after in zip(gaps, _find_following_bytes(data, gaps), strict=True):
        between = data[position : gap.start].rstrip(WHITE_SPACE)
        before = between[-1] if between else before
        if after in gap.hazards and before not in (NO_TOKEN, ord(";")) and not gap.first:
            gap.first = ";"
        replacement = gap.last or gap.first
        before = ord(replacement[-1]) if replacement else before
        position = gap.end


def _find_following_bytes(data: bytes, gaps: list[BlankedGap]) -> list[int]:
    """For each gap the first byte behind it that is neither white space nor in another gap."""
    tokens: list[int] = []
    after, position = NO_TOKEN, len(data)
    for gap in reversed(gaps):
        following = data[gap.end : position].lstrip(WHITE_SPACE)
        # `++` and `--` never join a line to the one before.
        is_step = following[:2] in (b"++", b"--")
        after = (NO_TOKEN if is_step else following[0]) if following else after
        tokens.append(after)
        replacement = gap.first or gap.last
        after = ord(replacement[0]) if replacement else after
        position = gap.start
    return tokens[::-1]
