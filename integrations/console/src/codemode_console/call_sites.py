"""Where a call begins in a program's text. Pure.

The engine tells of a call the last place that it came by: with ``refund({⏎ order: one.id })`` a line in its arguments.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any

from pygments.token import Comment, Keyword, Name, String

from codemode.plugins import cached_property

from .program import LEXER, MOST_HIGHLIGHTED, UNUSUAL_ENDS, lexer_deadline

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
