"""Texts that a simple regular expression matches, made by reading it: nothing here is ever matched against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

MAX_PATTERN_CHARACTERS = 300
MAX_TEXT_CHARACTERS = 100
_MAX_DEPTH = 8
_EXTRA = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 99)
_LIKELY = "".join(map(chr, (*b"aA1-_ ", *range(33, 127))))
_ENDS_OF_NAMES = {"<": ">", "P<": ">"}
_DIGITS, _WORDS, _SPACES = [("0", "9")], [("a", "z"), ("A", "Z"), ("0", "9"), ("_", "_")], [(" ", " "), ("\t", "\r")]
_CLASSES = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_PROPERTIES = {"L": "a", "Ll": "a", "Lu": "A", "N": "1", "Nd": "1", "P": "-", "Z": " ", "Zs": " "}
_HEXADECIMAL = {"x": 2, "u": 4}

Ranges: TypeAlias = list[tuple[str, str]]


class _Unclear(Exception):  # noqa: N818 - no error: only that nothing is made of it
    """What is read is more than this reads."""


class _Part(NamedTuple):
    """Something that is repeated ``least`` to ``most`` times, None without end: a text, or the parts of a group."""

    what: str | list[_Part]
    least: int
    most: int | None


def text_for(pattern: str, least: int = 0, most: int | None = None) -> str | None:
    """Return a text of at least and at most so many characters that should match; None where that is not simple."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        return None
    try:
        parts = _Reader(pattern).all()
        texts = list(_texts(parts))
    except _Unclear:
        return None
    fitting = [text for text in texts if len(text) >= least and (most is None or len(text) <= most)]
    return next((text for text in fitting if text), fitting[0] if fitting else None)


def _texts(parts: list[_Part]) -> Iterator[str]:
    for extra in _EXTRA:
        try:
            yield _built(parts, extra)
        except _Unclear:
            if extra == 0:
                raise
            return


def _built(parts: list[_Part], extra: int) -> str:
    text = ""
    for what, least, most in parts:
        times = least + extra if most is None else min(least + extra, most)
        one = what if isinstance(what, str) else _built(what, extra)
        if len(text) + len(one) * times > MAX_TEXT_CHARACTERS:
            raise _Unclear
        text += one * times
    return text


class _Reader:
    """Reads what JavaScript, Python and Rust write alike. Of alternatives it takes the first."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def all(self) -> list[_Part]:
        parts = self._alternatives(0)
        if self._at < len(self._pattern):
            raise _Unclear
        return parts

    def _next(self) -> str:
        if self._at >= len(self._pattern):
            raise _Unclear
        self._at += 1
        return self._pattern[self._at - 1]

    def _takes(self, text: str) -> bool:
        is_there = self._pattern.startswith(text, self._at)
        self._at += len(text) if is_there else 0
        return is_there

    def _until(self, end: str) -> str:
        found = self._pattern.find(end, self._at)
        if found < 0:
            raise _Unclear
        text, self._at = self._pattern[self._at : found], found + len(end)
        return text

    def _alternatives(self, depth: int) -> list[_Part]:
        if depth > _MAX_DEPTH:
            raise _Unclear
        every: list[list[_Part]] = [[]]
        while self._at < len(self._pattern) and self._pattern[self._at] != ")":
            if self._takes("|"):
                every.append([])
            else:
                every[-1].append(self._part(depth))
        return every[0]

    def _part(self, depth: int) -> _Part:
        character = self._next()
        if character in "^$":
            return _Part("", 1, 1)
        if character in "*+?{":
            raise _Unclear
        return _Part(self._atom(character, depth), *self._times())

    def _atom(self, character: str, depth: int) -> str | list[_Part]:
        if character == "(":
            return self._group(depth)
        if character == "[":
            return self._one_of()
        if character == "\\":
            return self._escaped()
        return "a" if character == "." else character

    def _group(self, depth: int) -> list[_Part]:
        if self._takes("?") and not self._takes(":"):
            begins = next((one for one in _ENDS_OF_NAMES if self._takes(one)), None)
            if begins is None or not self._until(_ENDS_OF_NAMES[begins]).isidentifier():
                raise _Unclear
        parts = self._alternatives(depth + 1)
        if not self._takes(")"):
            raise _Unclear
        return parts

    def _times(self) -> tuple[int, int | None]:
        least, most = 1, 1
        if self._takes("*"):
            least, most = 0, None
        elif self._takes("+"):
            least, most = 1, None
        elif self._takes("?"):
            least, most = 0, 1
        elif self._takes("{"):
            first, comma, second = self._until("}").partition(",")
            least = _count(first)
            most = least if not comma else _count(second) if second else None
        self._takes("?")  # the shorter is as good
        return least, most

    def _escaped(self) -> str:
        character = self._next()
        if character in "bB":
            return ""
        if character.lower() in _CLASSES:
            return _one_in(_CLASSES[character.lower()], is_negated=character.isupper())
        return self._character(character)

    def _character(self, escaped: str) -> str:
        if escaped in _CONTROLS:
            return _CONTROLS[escaped]
        if escaped in _HEXADECIMAL:
            digits = "".join(self._next() for _ in range(_HEXADECIMAL[escaped]))
            return chr(_count(digits, 16))
        if escaped == "p" and self._takes("{"):
            return _known(_PROPERTIES.get, self._until("}"))
        if escaped.isalnum():
            raise _Unclear
        return escaped

    def _one_of(self) -> str:
        is_negated, ranges = self._takes("^"), Ranges()
        while not self._takes("]"):
            character = self._next()
            if character == "\\" and self._pattern[self._at : self._at + 1] in _CLASSES:
                ranges += _CLASSES[self._next()]
                continue
            first = self._character(self._next()) if character == "\\" else character
            last = first
            if self._pattern[self._at : self._at + 1] == "-" and self._pattern[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                last = self._next()
                last = self._character(self._next()) if last == "\\" else last
            ranges.append((first, last))
        return _one_in(ranges, is_negated=is_negated)


def _one_in(ranges: Ranges, *, is_negated: bool) -> str:
    """Return one character that is in one of the ranges, or in none: a likely one, if there is one."""

    def fits(character: str) -> bool:
        return any(first <= character <= last for first, last in ranges) is not is_negated

    beginnings = "" if is_negated else "".join(first for first, _ in ranges)
    return _known(lambda text: next(filter(fits, text), None), _LIKELY + beginnings)


def _known(find: Callable[[str], str | None], text: str) -> str:
    found = find(text)
    if found is None:
        raise _Unclear
    return found


def _count(digits: str, base: int = 10) -> int:
    is_digits = digits.isascii() and digits.isalnum() and len(digits) <= 4
    try:
        return int(digits, base) if is_digits else _no_count()
    except ValueError:
        return _no_count()


def _no_count() -> int:
    raise _Unclear
