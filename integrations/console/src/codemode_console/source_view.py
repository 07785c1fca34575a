"""Highlight a program's source and locate its calls."""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape
from pygments.lexers.javascript import TypeScriptLexer
from pygments.token import Comment, Keyword, Name, Number, String

from codemode.cached_property import cached_property

from .visible_text import to_visible_html

MAX_HIGHLIGHTED_CHARACTERS = 64 * 1024
"""A program of more characters is shown without colours, and of its lines those that matter."""
MAX_HIGHLIGHTED_LINES = 2_000
LEXER_SECONDS = 0.5
"""Processor seconds of the thread."""
_MAX_PLAIN_LINES, _CONTEXT_LINES, _MAX_LINE_CHARACTERS, _MAX_MARKED_LINES = 500, 10, 2_000, 100
# Also lexes JavaScript.
LEXER: Any = TypeScriptLexer()
# The lexer tokenizes the value after a colon as a type, also in an object.
_STYLES: tuple[tuple[Any, str], ...] = (
    (Keyword.Type, ""),
    *((Comment, "c"), (String, "s"), (Number, "m"), (Keyword, "k")),
)
# Line ends of JavaScript that the engine counts inconsistently.
UNUSUAL_LINE_ENDS = re.compile("\r(?!\n)|[\u2028\u2029]")
_TO_NEWLINES = {0x0D: "\n", 0x2028: "\n", 0x2029: "\n"}


@dataclass(frozen=True, slots=True)
class CallLocation:
    """A pending call in the program. ``line`` counts from 1; None if unknown."""

    name: str
    anchor: str
    line: int | None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class ProgramLine:
    """A line: number, HTML, its pending calls, and how many lines before it are omitted."""

    number: int
    code: Markup
    pending_calls: tuple[CallLocation, ...]
    lines_omitted: int


@dataclass(frozen=True, slots=True)
class ProgramView:
    """A highlighted program.

    ``unlocated_calls`` have an unknown line; ``lines_omitted`` counts lines at the end. ``has_unusual_ends`` is True
    for line ends other than a newline, which are shown as escapes.
    """

    lines: tuple[ProgramLine, ...]
    unlocated_calls: tuple[CallLocation, ...]
    lines_omitted: int
    is_whole: bool
    has_unusual_ends: bool


def create_program_view(text: str, call_locations: Sequence[CallLocation] = ()) -> ProgramView:
    """Return the view of a JavaScript or TypeScript program. Takes at most some seconds."""
    spans = _find_line_spans(text)
    unusual_end_offsets = [found.start() for found in UNUSUAL_LINE_ENDS.finditer(text)]
    locations_by_line: dict[int, list[CallLocation]] = {}
    unplaced: list[CallLocation] = []
    for location in call_locations:
        number = _resolve_engine_line(location.line, spans, unusual_end_offsets)
        if number is None:
            unplaced.append(location)
        else:
            locations_by_line.setdefault(number, []).append(location)
    is_small = len(text) <= MAX_HIGHLIGHTED_CHARACTERS and len(spans) <= MAX_HIGHLIGHTED_LINES
    numbered_lines = _highlight_lines(text, spans) if is_small else _iterate_plain_lines(text, spans, locations_by_line)
    lines: list[ProgramLine] = []
    last_number = 0
    for number, code in numbered_lines:
        lines.append(ProgramLine(number, code, tuple(locations_by_line.get(number, ())), number - last_number - 1))
        last_number = number
    return ProgramView(tuple(lines), tuple(unplaced), len(spans) - last_number, is_small, bool(unusual_end_offsets))


def is_source_of_compiled_js(source: str, js: str) -> bool:
    """Return whether ``js`` is ``source`` with its types replaced by blanks."""
    if source == js:
        return True
    source_bytes, js_bytes = (text.encode("utf-16-le", "surrogatepass") for text in (source, js))
    if len(source_bytes) != len(js_bytes):
        return False
    units = zip(memoryview(source_bytes).cast("H"), memoryview(js_bytes).cast("H"), strict=True)
    return all(source_unit == js_unit or js_unit in _BLANKED_UNITS for source_unit, js_unit in units)


_BLANKED_UNITS = frozenset(map(ord, " ();"))


def _find_line_spans(text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    start = 0
    while (end := text.find("\n", start)) >= 0:
        spans.append((start, end - 1 if end > start and text[end - 1] == "\r" else end))
        start = end + 1
    # A trailing newline starts no line.
    return [*spans, (start, len(text))] if start < len(text) or not spans else spans


def _resolve_engine_line(
    engine_line: int | None, spans: Sequence[tuple[int, int]], unusual_end_offsets: Sequence[int]
) -> int | None:
    r"""Return the line that the engine means; None if it is ambiguous.

    The engine counts each ``\n``, and some of the unusual line ends before the call.
    """
    if engine_line is None or engine_line < 1:
        return None
    if not unusual_end_offsets:
        return engine_line if engine_line <= len(spans) else None
    lowest = max(1, engine_line - len(unusual_end_offsets))
    candidates = [
        number
        for number in range(lowest, min(engine_line, len(spans)) + 1)
        if number + bisect_right(unusual_end_offsets, spans[number - 1][1]) >= engine_line
    ]
    return candidates[0] if len(candidates) == 1 else None


def _highlight_lines(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Markup]]:
    pieces_by_line: list[list[Markup]] = [[] for _ in spans]
    number = 0
    for style, start, end in _merge_styled_spans(_iterate_styled_spans(text)):
        offset = start
        while offset < end:
            while number + 1 < len(spans) and offset >= spans[number + 1][0]:
                number += 1
            line_start, line_end = spans[number]
            piece = to_visible_html(text[max(offset, line_start) : min(end, line_end)])
            if piece:
                # The class name is one of `_STYLES`.
                pieces_by_line[number].append(Markup(f'<span class="tok-{style}">{piece}</span>') if style else piece)  # noqa: S704
            offset = min(end, spans[number + 1][0] if number + 1 < len(spans) else len(text))
    return ((number, Markup().join(line_pieces)) for number, line_pieces in enumerate(pieces_by_line, 1))


def create_lexer_deadline_check() -> Callable[[], bool]:
    """Return a function that tells whether this thread has computed for `LEXER_SECONDS`."""
    deadline = time.thread_time() + LEXER_SECONDS
    return lambda: time.thread_time() > deadline


def _iterate_styled_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield style, start and end of the program's parts; the rest is unstyled after the deadline."""
    offset, is_over_deadline = 0, create_lexer_deadline_check()
    for start, kind, piece in LEXER.get_tokens_unprocessed(text.translate(_TO_NEWLINES)):
        offset = start + len(piece)
        yield next((style for token_type, style in _STYLES if kind in token_type), ""), start, offset
        if is_over_deadline():
            break
    yield "", offset, len(text)


def _merge_styled_spans(parts: Iterable[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    style, run_start, run_end = "", 0, 0
    for part_style, start, end in parts:
        if part_style != style:
            yield style, run_start, run_end
            style, run_start = part_style, start
        run_end = end
    yield style, run_start, run_end


def _iterate_plain_lines(
    text: str, spans: Sequence[tuple[int, int]], locations_by_line: dict[int, list[CallLocation]]
) -> Iterator[tuple[int, Markup]]:
    """Yield the first lines and those around pending calls, truncated."""
    listed_numbers = set(range(1, min(_MAX_PLAIN_LINES, len(spans)) + 1))
    for number in sorted(locations_by_line)[:_MAX_MARKED_LINES]:
        listed_numbers.update(range(max(1, number - _CONTEXT_LINES), min(len(spans), number + _CONTEXT_LINES) + 1))
    characters_left = MAX_HIGHLIGHTED_CHARACTERS * 2
    for number in sorted(listed_numbers):
        if number not in locations_by_line and characters_left <= 0:
            continue
        start, end = spans[number - 1]
        code = _truncate_line(text[start:end], locations_by_line.get(number, []))
        characters_left -= len(code)
        yield number, code


def _truncate_line(line: str, locations: Sequence[CallLocation]) -> Markup:
    column = min((location.column or 1 for location in locations), default=1)
    start = column - _MAX_LINE_CHARACTERS // 2 if column > _MAX_LINE_CHARACTERS else 0
    end = start + _MAX_LINE_CHARACTERS
    ellipsis = escape(" \N{HORIZONTAL ELLIPSIS} ")
    before, after = ellipsis if start else "", ellipsis if end < len(line) else ""
    return Markup("{}{}{}").format(before, to_visible_html(line[start:end]), after)


# The engine reports the last location before a call: with ``refund({⏎ order: one.id })`` a line in its arguments.

_OPENING_BRACKETS, _CLOSING_BRACKETS = frozenset({"(", "[", "{", "${"}), frozenset({")", "]", "}"})
_MAX_LOOKAHEAD_TOKENS = 8
_NAME_PART = re.compile(r"[\w$]+|[^\s\w$]")
_Token = tuple[int, Any, str]


class CallSites:
    """The calls of a program; empty if it is unreadable, and locations stay as the engine reports them."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(at + 1 for at, character in enumerate(self._text) if character == "\n")]

    @cached_property
    def _token_offsets(self) -> list[int]:
        return [start for start, _, _ in self._tokens]

    @cached_property
    def _tokens(self) -> list[_Token]:
        tokens: list[_Token] = []
        is_over_deadline = create_lexer_deadline_check()
        for start, kind, piece in LEXER.get_tokens_unprocessed(self._text):
            if kind in Keyword.Type:  # see `_STYLES`
                parts = _NAME_PART.finditer(piece)
                tokens += [(start + part.start(), Name, part[0]) for part in parts]
            elif piece.strip() and kind not in Comment:
                tokens.append((start, kind, piece.strip()))
            if is_over_deadline():
                return []
        return tokens

    def find_start_line(self, name: str, line: int, column: int | None) -> int:
        """Return the line in which the call starts that the engine reports at this location."""
        if column is None or not 0 < line <= len(self._line_starts):
            return line
        index = bisect_right(self._token_offsets, self._line_starts[line - 1] + column - 1) - 1
        if index < 0 or self._leads_to_call(index, name):
            return line
        depth = 0
        for position in range(index, -1, -1):
            _, kind, text = self._tokens[position]
            if not _is_bracket(kind, text):
                continue
            if text in _CLOSING_BRACKETS:
                depth += position != index
            elif depth:
                depth -= 1
            elif text == "(" and self._opens_call(position, name):
                return bisect_right(self._line_starts, self._tokens[position - 1][0])
        return line

    def _leads_to_call(self, index: int, name: str) -> bool:
        """Return whether the tokens from here are ``tools . name (`` of this tool."""
        for position in range(index, min(index + _MAX_LOOKAHEAD_TOKENS, len(self._tokens))):
            _, kind, text = self._tokens[position]
            if text == "(":
                return position > index and self._opens_call(position, name)
            if kind not in Name and text not in (".", "?.", "["):
                return False
        return False

    def _opens_call(self, position: int, name: str) -> bool:
        """Return whether the bracket here opens a call of the tool: ``name(`` or ``callTool("name"``."""
        if position == 0:
            return False
        member_name = _get_last_name_part(name)
        preceding, following = self._tokens[position - 1], self._tokens[position + 1 : position + 2]
        if preceding[2] == "]" and position > 1:
            return _get_string_content(self._tokens[position - 2]) == name
        return preceding[2] == member_name or (
            preceding[1] in Name and any(_get_string_content(token) == name for token in following)
        )


def _is_bracket(kind: Any, text: str) -> bool:
    return (
        text in _OPENING_BRACKETS or text in _CLOSING_BRACKETS
        if kind not in String or kind in String.Interpol
        else False
    )


def _get_string_content(token: _Token) -> str | None:
    _, kind, text = token
    return text[1:-1] if kind in String and len(text) > 1 else None


def _get_last_name_part(name: str) -> str:
    return name.replace(":", ".").rpartition(".")[2]


def find_call_sites(text: str | None) -> CallSites | None:
    """Return the calls of a program; None if it is too long or has unusual line ends."""
    is_readable = (
        text is not None and len(text) <= MAX_HIGHLIGHTED_CHARACTERS and UNUSUAL_LINE_ENDS.search(text) is None
    )
    return CallSites(text) if text is not None and is_readable else None
