"""A program as highlighted lines of a page, and where its calls begin."""

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

from .visible import visible

MOST_HIGHLIGHTED = 64 * 1024
"""A program of more characters is shown without colours, and of its lines those that matter."""
MOST_LINES = 2_000
LEXER_SECONDS = 0.5
"""So long a thread may compute, which a machine that stands still makes no longer."""
_FIRST_LINES, _LINES_AROUND, _LINE_CHARACTERS, _MOST_MARKED = 500, 10, 2_000, 100
# The lexer knows JavaScript too: its types are what is beside that.
LEXER: Any = TypeScriptLexer()
# The lexer takes what follows a colon for a type, also in an object.
_CLASSES: tuple[tuple[Any, str], ...] = (
    (Keyword.Type, ""),
    *((Comment, "c"), (String, "s"), (Number, "m"), (Keyword, "k")),
)
# Ends of lines for JavaScript, of which the engine counts some here and not there.
UNUSUAL_ENDS = re.compile("\r(?!\n)|[\u2028\u2029]")
_AS_ENDS = {0x0D: "\n", 0x2028: "\n", 0x2029: "\n"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program makes a call that waits. ``line`` counts from 1; None: nobody knows."""

    name: str
    anchor: str
    line: int | None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class ProgramLine:
    """One line: its number, its text as HTML, the calls that it makes, and how many lines before it are left out."""

    number: int
    code: Markup
    waits: tuple[Place, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class ProgramView:
    """A program for a page. ``unplaced`` are calls of which nobody can tell the line; ``left_out`` lines at its end.

    ``has_unusual_ends``: it has ends of lines that few people see as such. They are escapes, within a line here.
    """

    lines: tuple[ProgramLine, ...]
    unplaced: tuple[Place, ...]
    left_out: int
    is_whole: bool
    has_unusual_ends: bool


def program_view(text: str, places: Sequence[Place] = ()) -> ProgramView:
    """Return a program, JavaScript or TypeScript, for a page. Takes as long as it is long, and at most some seconds."""
    spans = _line_spans(text)
    unusual = [found.start() for found in UNUSUAL_ENDS.finditer(text)]
    marked: dict[int, list[Place]] = {}
    unplaced: list[Place] = []
    for place in places:
        number = _line_of(place.line, spans, unusual)
        if number is None:
            unplaced.append(place)
        else:
            marked.setdefault(number, []).append(place)
    is_small = len(text) <= MOST_HIGHLIGHTED and len(spans) <= MOST_LINES
    codes = _highlighted(text, spans) if is_small else _plain(text, spans, marked)
    lines: list[ProgramLine] = []
    before = 0
    for number, code in codes:
        lines.append(ProgramLine(number, code, tuple(marked.get(number, ())), number - before - 1))
        before = number
    return ProgramView(tuple(lines), tuple(unplaced), len(spans) - before, is_small, bool(unusual))


def is_written_as(source: str, js: str) -> bool:
    """Tell whether ``js`` is what ``source`` comes to once its types are taken away: these become blanks."""
    if source == js:
        return True
    written, runs = (text.encode("utf-16-le", "surrogatepass") for text in (source, js))
    if len(written) != len(runs):
        return False
    units = zip(memoryview(written).cast("H"), memoryview(runs).cast("H"), strict=True)
    return all(one == other or other in _IN_BLANKS for one, other in units)


_IN_BLANKS = frozenset(map(ord, " ();"))


def _line_spans(text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    start = 0
    while (end := text.find("\n", start)) >= 0:
        spans.append((start, end - 1 if end > start and text[end - 1] == "\r" else end))
        start = end + 1
    # What stands behind the last end is a line only where something does.
    return [*spans, (start, len(text))] if start < len(text) or not spans else spans


def _line_of(counted: int | None, spans: Sequence[tuple[int, int]], unusual: Sequence[int]) -> int | None:
    r"""Return the line that the engine means; None where it may be one of several.

    It has counted each ``\n``, and some of the unusual ends before the call.
    """
    if counted is None or counted < 1:
        return None
    if not unusual:
        return counted if counted <= len(spans) else None
    lowest = max(1, counted - len(unusual))
    fits = [
        number
        for number in range(lowest, min(counted, len(spans)) + 1)
        if number + bisect_right(unusual, spans[number - 1][1]) >= counted
    ]
    return fits[0] if len(fits) == 1 else None


def _highlighted(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Markup]]:
    pieces: list[list[Markup]] = [[] for _ in spans]
    number = 0
    for style, start, end in _joined(_styled(text)):
        at = start
        while at < end:
            while number + 1 < len(spans) and at >= spans[number + 1][0]:
                number += 1
            begun, ended = spans[number]
            piece = visible(text[max(at, begun) : min(end, ended)])
            if piece:
                # The class is one of ours.
                pieces[number].append(Markup(f'<span class="tok-{style}">{piece}</span>') if style else piece)  # noqa: S704
            at = min(end, spans[number + 1][0] if number + 1 < len(spans) else len(text))
    return ((number, Markup().join(found)) for number, found in enumerate(pieces, 1))


def lexer_deadline() -> Callable[[], bool]:
    """Return what tells whether this thread has computed for `LEXER_SECONDS` by then."""
    until = time.thread_time() + LEXER_SECONDS
    return lambda: time.thread_time() > until


def _styled(text: str) -> Iterator[tuple[str, int, int]]:
    """Give the parts of a program, each with what it is. What takes too long to tell has no colours."""
    at, is_late = 0, lexer_deadline()
    for start, kind, piece in LEXER.get_tokens_unprocessed(text.translate(_AS_ENDS)):
        at = start + len(piece)
        yield next((style for one, style in _CLASSES if kind in one), ""), start, at
        if is_late():
            break
    yield "", at, len(text)


def _joined(parts: Iterable[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    style, begun, ended = "", 0, 0
    for one, start, end in parts:
        if one != style:
            yield style, begun, ended
            style, begun = one, start
        ended = end
    yield style, begun, ended


def _plain(text: str, spans: Sequence[tuple[int, int]], marked: dict[int, list[Place]]) -> Iterator[tuple[int, Markup]]:
    """Give the first lines, and those around what waits, each cut."""
    shown = set(range(1, min(_FIRST_LINES, len(spans)) + 1))
    for number in sorted(marked)[:_MOST_MARKED]:
        shown.update(range(max(1, number - _LINES_AROUND), min(len(spans), number + _LINES_AROUND) + 1))
    left = MOST_HIGHLIGHTED * 2
    for number in sorted(shown):
        if number not in marked and left <= 0:
            continue
        start, end = spans[number - 1]
        code = _cut_line(text[start:end], marked.get(number, []))
        left -= len(code)
        yield number, code


def _cut_line(line: str, places: Sequence[Place]) -> Markup:
    column = min((one.column or 1 for one in places), default=1)
    start = column - _LINE_CHARACTERS // 2 if column > _LINE_CHARACTERS else 0
    end = start + _LINE_CHARACTERS
    dots = escape(" \N{HORIZONTAL ELLIPSIS} ")
    before, after = dots if start else "", dots if end < len(line) else ""
    return Markup("{}{}{}").format(before, visible(line[start:end]), after)


# The engine tells of a call the last place that it came by: with ``refund({⏎ order: one.id })`` a line in its
# arguments.

_OPENING, _CLOSING = frozenset({"(", "[", "{", "${"}), frozenset({")", "]", "}"})
_MOST_AHEAD = 8
_PART = re.compile(r"[\w$]+|[^\s\w$]")
_Token = tuple[int, Any, str]


class CallSites:
    """The calls of a program. Of one that takes too long to be read none is known, and all stays as it was told."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(at + 1 for at, character in enumerate(self._text) if character == "\n")]

    @cached_property
    def _offsets(self) -> list[int]:
        return [start for start, _, _ in self._tokens]

    @cached_property
    def _tokens(self) -> list[_Token]:
        tokens: list[_Token] = []
        is_late = lexer_deadline()
        for start, kind, piece in LEXER.get_tokens_unprocessed(self._text):
            if kind in Keyword.Type:  # as which the lexer takes what follows a colon, in an object too
                parts = _PART.finditer(piece)
                tokens += [(start + part.start(), Name, part[0]) for part in parts]
            elif piece.strip() and kind not in Comment:
                tokens.append((start, kind, piece.strip()))
            if is_late():
                return []
        return tokens

    def line_of(self, name: str, line: int, column: int | None) -> int:
        """Return the line in which the call of a tool begins that was told to be at this place."""
        if column is None or not 0 < line <= len(self._starts):
            return line
        at = bisect_right(self._offsets, self._starts[line - 1] + column - 1) - 1
        if at < 0 or self._begins(at, name):
            return line
        depth = 0
        for place in range(at, -1, -1):
            _, kind, text = self._tokens[place]
            if not _is_bracket(kind, text):
                continue
            if text in _CLOSING:
                depth += place != at
            elif depth:
                depth -= 1
            elif text == "(" and self._is_of(place, name):
                return bisect_right(self._starts, self._tokens[place - 1][0])
        return line

    def _begins(self, at: int, name: str) -> bool:
        """Tell whether what stands here leads to the bracket of a call of this tool: ``tools . name (``."""
        for place in range(at, min(at + _MOST_AHEAD, len(self._tokens))):
            _, kind, text = self._tokens[place]
            if text == "(":
                return place > at and self._is_of(place, name)
            if kind not in Name and text not in (".", "?.", "["):
                return False
        return False

    def _is_of(self, place: int, name: str) -> bool:
        """Tell whether the bracket at this place is that of a call of a tool: ``name(`` or ``callTool("name"``."""
        if place == 0:
            return False
        wanted = _last(name)
        before, behind = self._tokens[place - 1], self._tokens[place + 1 : place + 2]
        if before[2] == "]" and place > 1:
            return _quoted(self._tokens[place - 2]) == name
        return before[2] == wanted or (before[1] in Name and any(_quoted(one) == name for one in behind))


def _is_bracket(kind: Any, text: str) -> bool:
    return text in _OPENING or text in _CLOSING if kind not in String or kind in String.Interpol else False


def _quoted(token: _Token) -> str | None:
    _, kind, text = token
    return text[1:-1] if kind in String and len(text) > 1 else None


def _last(name: str) -> str:
    return name.replace(":", ".").rpartition(".")[2]


def sites_of(text: str | None) -> CallSites | None:
    """Return the calls of a program; None where it is too long, or the engine may have counted other lines."""
    is_plain = text is not None and len(text) <= MOST_HIGHLIGHTED and UNUSUAL_ENDS.search(text) is None
    return CallSites(text) if text is not None and is_plain else None
