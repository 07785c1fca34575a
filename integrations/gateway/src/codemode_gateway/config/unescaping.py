"""Reads a text as whoever resolves its escapes would, and tells from where each character came. Pure."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator

from codemode.host import steps

# One character each: of URLs (the bytes of its UTF-8), of JSON and of Python's literals, of HTML.
_CONT = "%[89ABab][0-9A-Fa-f]"
_ESCAPE = re.compile(
    rf"%[0-7][0-9A-Fa-f]|%[CDcd][0-9A-Fa-f]{_CONT}|%[Ee][0-9A-Fa-f](?:{_CONT}){{2}}|%[Ff][0-7](?:{_CONT}){{3}}"
    r"|\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\[^ux]"
    r"|&(?:amp|lt|gt|quot|apos|\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6});",
    re.DOTALL,
)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "0": "\0"}
_ROUNDS = 3
_PIECE = 1 << 14
_LONGEST_ESCAPE = 12


class View:
    """A text with its escapes resolved. ``place`` tells where a place of it is in the text that it was made of."""

    def __init__(self, text: str, before: View | None = None, ends: list[int] | None = None) -> None:
        self.text = text
        self._before = before
        self._ends = ends or []  # places in this text behind each character that was an escape
        self._lost: list[int] = []  # by how many characters the text before is longer up to there

    def place(self, place: int) -> int:
        """Return the place in the first text; one between two characters stays between them."""
        if self._before is None:
            return place
        index = bisect_right(self._ends, place) - 1
        return self._before.place(place + (self._lost[index] if index >= 0 else 0))

    def resolved(self) -> View | None:
        """Return the next view, or None where this text has no escapes."""
        parts: list[str] = []
        found = View("", self)
        lost = end = length = 0
        for start, behind in _escapes(self.text):
            steps.take()
            one = _character(self.text[start:behind])
            parts += (self.text[end:start], one)
            length += start - end + len(one)
            lost += behind - start - len(one)
            end = behind
            found._ends.append(length)
            found._lost.append(lost)
        if not parts:
            return None
        found.text = "".join([*parts, self.text[end:]])
        return found


def views_of(text: str) -> Iterator[View]:
    """Yield the text as it is, and with its escapes resolved once, twice and three times."""
    view: View | None = View(text)
    for _ in range(_ROUNDS + 1):
        if view is None:
            return
        yield view
        view = view.resolved()


def _escapes(text: str) -> Iterator[tuple[int, int]]:
    place = 0
    while place < len(text):
        steps.take(1 + (_PIECE >> 8))
        end = place + _PIECE
        for match in _ESCAPE.finditer(text, place, min(len(text), end + _LONGEST_ESCAPE)):
            if match.start() >= end:
                break
            yield match.span()
            place = match.end()
        place = max(place, end)


def _character(escape: str) -> str:
    if escape[0] == "%":
        return bytes.fromhex(escape.replace("%", "")).decode(errors="replace")
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[1] in "ux":
        digits = [part for part in re.split(r"\\[ux]", escape) if part]
        units = b"".join(int(part, 16).to_bytes(2, "big") for part in digits)
        return units.decode("utf-16-be", errors="surrogatepass")
    return _CONTROLS.get(escape[1], escape[1])
